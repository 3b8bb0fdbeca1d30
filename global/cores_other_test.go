//go:build !linux

package global

import "testing"

// pinToOwnCore is implemented on Linux only.
func pinToOwnCore(*testing.T) {}
