//go:build !linux

package machine

import (
	"errors"
	"os/exec"
	"time"
)

var errLinux = errors.New("processes are measured on Linux alone")

// DieWithUs does nothing here.
func DieWithUs(*exec.Cmd) {}

// ProcessorTime is not known here.
func ProcessorTime(int) (time.Duration, error) { return 0, errLinux }

// WaitingTime is not known here.
func WaitingTime(int) (time.Duration, error) { return 0, errLinux }

// Busy is not known here.
func Busy() (time.Duration, error) { return 0, errLinux }

// Resident is not known here.
func Resident(int) (int64, error) { return 0, errLinux }

// Peak is not known here.
func Peak(int) (int64, error) { return 0, errLinux }

// Load is not known here.
func Load() string { return "unknown" }
