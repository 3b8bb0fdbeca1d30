package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// processorTime is what this process has used so far, in the kernel too.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// peakMemory is the most that this process has had in memory, in bytes.
func peakMemory() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the system does not say what this process had in memory")
}

// machineLoad is the system's load of the last minute.
func machineLoad() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}

// waitingTime is how long this process's threads have been ready and had no processor; 0 where the system does not say.
func waitingTime() (sum time.Duration) {
	names, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return 0
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread ended
		}
		if f := strings.Fields(string(b)); len(f) == 3 {
			n, _ := strconv.ParseInt(f[1], 10, 64) // it is a number
			sum += time.Duration(n)
		}
	}
	return sum
}
