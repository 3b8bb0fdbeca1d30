//go:build !linux

package main

import "context"

// runSchedulerKeepAlive does nothing: the cost that it avoids was measured on Linux only.
func runSchedulerKeepAlive(context.Context) {}

// growDescriptors does nothing: only Linux blocks threads while the descriptor table grows.
func growDescriptors(int) {}
