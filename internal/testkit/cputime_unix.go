//go:build linux || darwin

package testkit

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time of this process, or 0 if the system does not tell it. A benchmark on a shared machine
// compares it instead of the wall time.
func CPUTime() time.Duration { return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadTime returns the CPU time of this thread, or 0 if the system does not tell it.
func ThreadTime() time.Duration { return readClock(unix.CLOCK_THREAD_CPUTIME_ID) }

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
