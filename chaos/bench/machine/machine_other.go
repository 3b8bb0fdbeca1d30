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

// AnonymousBytes is available on Linux only.
func AnonymousBytes(int) (int64, error) { return 0, errLinuxOnly }

// PeakBytes is not available on this system.
func PeakBytes(int) (int64, error) { return 0, errLinuxOnly }

// LoadAverage is not available on this system.
func LoadAverage() string { return "unknown" }

// RaisePriority has an effect on Linux only.
func RaisePriority() {}

// PinProcess is not available on this system.
func PinProcess(int) error { return errLinuxOnly }

// PinThread is not available on this system.
func PinThread(int) error { return errLinuxOnly }

// UseFineTimers has an effect on Linux only.
func UseFineTimers() {}

// SleepNanos sleeps with the precision of the Go scheduler.
func SleepNanos(ns int64) { time.Sleep(time.Duration(ns)) }

// ProcessTree is the process alone, because its descendants are not known on this system.
func ProcessTree(pid int) []int { return []int{pid} }
