//go:build !linux

package main

import (
	"errors"
	"os/exec"
	"time"
)

func dieWithUs(*exec.Cmd) {}

func processorTime() (time.Duration, error) {
	return 0, errors.New("processor time is measured on Linux alone")
}

func peakMemory() (int64, error) { return 0, errors.ErrUnsupported }

func machineLoad() string { return "unknown" }

func waitingTime() time.Duration { return 0 }
