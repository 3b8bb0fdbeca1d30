package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	// keepAliveInterval is how often the CPU use of the process is measured, and how long a processor is held.
	keepAliveInterval = time.Second
	// keepAliveMinLoad is the CPU use, as a share of one core, above which holding a processor saves more than it costs. In
	// an idle process it would cost 0.4 % of a core.
	keepAliveMinLoad = 0.03
	// maxYieldDelay is the longest runtime.Gosched may take for the process to count as having an idle processor. When
	// all processors are busy the runtime's monitor does not park and there is nothing to save; goroutines queued at the
	// held processor would wait up to 10 ms until another processor takes them over.
	maxYieldDelay = 100 * time.Microsecond
	// contendedPause is how long no processor is held after all processors were found busy.
	contendedPause = 50 * time.Millisecond
)

// runSchedulerKeepAlive reduces the CPU cost of frequent short wake-ups in a busy process, until ctx ends.
//
// Tokens arrive one by one: a relay sleeps and wakes thousands of times per second for a few microseconds each. When all
// processors (Ps) of the Go scheduler are idle, the runtime's monitor thread (sysmon) parks; the next event unparks it, and
// it polls every 20 us until the process looks idle again. This function adds one processor and holds it by a thread that
// sleeps in the kernel by a raw system call, which the scheduler does not notice. That processor is never idle, so sysmon
// does not park and stays at its slow polling interval. Garbage collections are not delayed: the preemption signal ends the
// sleep.
func runSchedulerKeepAlive(ctx context.Context) {
	runtime.LockOSThread() // ends with the goroutine
	raised := false
	used, at := readProcessorTime(), time.Now()
	for busy := false; ctx.Err() == nil; {
		switch {
		case !busy:
			sleepContext(ctx, keepAliveInterval)
		case hasWaitingGoroutines():
			sleepContext(ctx, contendedPause)
		default:
			holdProcessor()
		}
		elapsed := time.Since(at)
		if elapsed < keepAliveInterval/2 {
			continue
		}
		now := readProcessorTime()
		busy = float64(now-used) > keepAliveMinLoad*float64(elapsed)
		used, at = now, at.Add(elapsed)
		if busy && !raised {
			runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
			raised = true
		}
	}
}

// hasWaitingGoroutines reports whether goroutines wait for a processor.
func hasWaitingGoroutines() bool {
	began := time.Now()
	runtime.Gosched()
	return time.Since(began) > maxYieldDelay
}

func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// holdProcessor sleeps while it occupies this goroutine's processor, for keepAliveInterval or until the runtime preempts it,
// which happens every 10 ms.
func holdProcessor() {
	ts := syscall.NsecToTimespec(int64(keepAliveInterval))
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // a signal may end it early
}

// readProcessorTime returns the CPU time that the process has used since it started.
func readProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// growDescriptors makes the kernel's file descriptor table large enough for n descriptors, within RLIMIT_NOFILE, before
// there is traffic. Otherwise the kernel doubles the table under load, and each doubling blocks every thread that opens a
// connection for 4 to 20 ms.
func growDescriptors(n int) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		n = int(min(uint64(n), limit.Cur))
	}
	fd, _, failed := syscall.RawSyscall(syscall.SYS_FCNTL, 0, syscall.F_DUPFD_CLOEXEC, uintptr(n-1))
	if failed == 0 {
		_ = syscall.Close(int(fd))
	}
}
