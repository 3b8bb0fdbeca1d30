//go:build unix

package experiment

import (
	"runtime"
	"syscall"
)

// processorSeconds is the CPU time of this process.
func processorSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// peakMemory is the maximum resident memory in bytes.
func peakMemory() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return float64(u.Maxrss)
	}
	return float64(u.Maxrss) * 1024
}
