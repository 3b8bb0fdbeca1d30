//go:build unix

package lab

import (
	"runtime"
	"syscall"
)

// processorSeconds is what this process has had of the processors.
func processorSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// mostMemory is the most bytes that were resident.
func mostMemory() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return float64(u.Maxrss)
	}
	return float64(u.Maxrss) * 1024
}
