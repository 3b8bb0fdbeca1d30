package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/chaos/dnsload"
)

// alone keeps this process on one core, and asks for it and its children to go before all else, which the system may
// refuse.
func alone(core int) error {
	dnsload.Priority()
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// sleepFinely makes this goroutine's thread wake up at the microsecond that it asked for.
func sleepFinely() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // coarser sleeps are late, and worse for nobody else
}

// sleepNanos sleeps at most a few milliseconds, without telling the scheduler.
func sleepNanos(ns int64) {
	ts := syscall.NsecToTimespec(max(ns, 1))
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // an early end is as good
}

// processorTime is what all threads of a process have used so far.
func processorTime(pid int) (time.Duration, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(stats) == 0 {
		return 0, fmt.Errorf("process %d is gone", pid)
	}
	var sum int64
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += ns
	}
	return time.Duration(sum), nil
}

// residentKB is a process's memory.
func residentKB(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			return strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}

// machineLoad is the system's load of the last minute.
func machineLoad() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}

// family are a process and all that it has started.
func family(pid int) []int {
	all := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none, when it is gone
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(all, family(child)...)
		}
	}
	return all
}
