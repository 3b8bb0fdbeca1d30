//go:build !linux

package main

import (
	"errors"
)

func alone(int) error { return errors.New("processor time is measured on Linux alone") }
