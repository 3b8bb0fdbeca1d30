package pick

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time of this thread, so that benchmarks work on a shared machine.
func threadTime(tb testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
