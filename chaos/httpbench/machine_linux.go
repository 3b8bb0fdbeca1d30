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
