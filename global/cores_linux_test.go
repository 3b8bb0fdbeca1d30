package global

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// pinToOwnCore locks the caller's thread to the last of this process's cores, and moves the process's other threads
// to the other cores. The load generator polls without pause, and a thread of the node that took its core for a
// moment would count as the node's delay. New threads inherit the affinity of their parent. With a single core it
// does nothing.
func pinToOwnCore(t *testing.T) {
	t.Helper()
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < 2 {
		return
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			last.Zero()
			last.Set(cpu)
		}
	}
	for cpu := range 1024 {
		if last.IsSet(cpu) {
			all.Clear(cpu)
		}
	}
	runtime.LockOSThread()
	for range 2 { // a thread may have started another one meanwhile
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if id, err := strconv.Atoi(task.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, &all) // the thread may have ended
			}
		}
	}
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		t.Fatal(err)
	}
}
