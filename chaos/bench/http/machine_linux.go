package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
)

// pinToCore pins this process to one core, and requests a high priority for it and its children, which the system may
// refuse.
func pinToCore(core int) error {
	dnsload.RaisePriority()
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

// useFineTimers lets this goroutine's thread wake up with microsecond precision.
func useFineTimers() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // coarser sleeps are only late
}

// sleepNanos sleeps at most a few milliseconds, without the Go scheduler.
func sleepNanos(ns int64) {
	ts := syscall.NsecToTimespec(max(ns, 1))
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // waking early does no harm
}

// processTree is a process and all its descendants.
func processTree(pid int) []int {
	all := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none when it has ended
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(all, processTree(child)...)
		}
	}
	return all
}
