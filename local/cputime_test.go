package local_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processCPUTime is the CPU time of this process so far, user and system.
func processCPUTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
