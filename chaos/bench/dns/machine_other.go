//go:build !linux

package main

import (
	"errors"
)

func pinToCore(int) error { return errors.New("CPU time is measured on Linux only") }
