package local_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what this process has used so far, user and system.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
