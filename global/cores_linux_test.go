package global

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// ownCore locks the caller's thread and gives it the last of this process's cores, and all others to the process's
// other threads: whoever asks polls without end, and a thread of the node that took its core for a moment would count
// as the node's delay. Threads to come inherit from one of the others. Where there is one core alone it does nothing.
func ownCore(t *testing.T) {
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
	for range 2 { // a thread may have begun another one meanwhile
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if id, err := strconv.Atoi(task.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, &all) // it may have ended
			}
		}
	}
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		t.Fatal(err)
	}
}
