package pick

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time that this thread has had, so that a machine that others use can be measured on.
func threadTime(tb testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
