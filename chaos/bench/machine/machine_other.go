//go:build !linux

package machine

import (
	"errors"
	"os/exec"
	"time"
)

var errLinuxOnly = errors.New("processes are measured on Linux only")

// KillWithParent has no effect on this system.
func KillWithParent(*exec.Cmd) {}

// ProcessorTime is not available on this system.
func ProcessorTime(int) (time.Duration, error) { return 0, errLinuxOnly }

// WaitingTime is not available on this system.
func WaitingTime(int) (time.Duration, error) { return 0, errLinuxOnly }

// TotalCPUTime is not available on this system.
func TotalCPUTime() (time.Duration, error) { return 0, errLinuxOnly }

// ResidentBytes is not available on this system.
func ResidentBytes(int) (int64, error) { return 0, errLinuxOnly }

// PeakBytes is not available on this system.
func PeakBytes(int) (int64, error) { return 0, errLinuxOnly }

// LoadAverage is not available on this system.
func LoadAverage() string { return "unknown" }
