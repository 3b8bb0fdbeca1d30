package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	// calmEvery is how often it is looked at whether the process is busy.
	calmEvery = time.Second
	// calmAbove is the share of one processor above which staying calm saves more than it costs. It costs a process that
	// has nothing to do 0.4 % of one.
	calmAbove = 0.03
	// calmUnder is how long it may take until others have had their turn, for the process to count as one with idle
	// processors. Where none is idle there is nothing to be calm about, and those that wait for the held one, until an
	// idle one takes them over, would wait for 10 ms.
	calmUnder = 100 * time.Microsecond
	// calmPause is how long nothing is held then.
	calmPause = 50 * time.Millisecond
)

// keepCalm spares a busy process most of the work of waking up, until ctx ends.
//
// Tokens come one by one: a relay sleeps and wakes thousands of times a second for a few microseconds each. When all of
// Go's processors are idle, its monitor thread parks; the next event unparks it, and it polls every 20 us until things
// look idle again. One processor more, held by a thread that sleeps in the kernel without telling the scheduler, is never
// idle, and the monitor stays in its slow rhythm. A garbage collection is not held up: its signal ends the sleep.
func keepCalm(ctx context.Context) {
	runtime.LockOSThread() // ends with the goroutine
	raised := false
	used, at := processorTime(), time.Now()
	for busy := false; ctx.Err() == nil; {
		switch {
		case !busy:
			idle(ctx, calmEvery)
		case crowded():
			idle(ctx, calmPause)
		default:
			holdProcessor()
		}
		elapsed := time.Since(at)
		if elapsed < calmEvery/2 {
			continue
		}
		now := processorTime()
		busy = float64(now-used) > calmAbove*float64(elapsed)
		used, at = now, at.Add(elapsed)
		if busy && !raised {
			runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
			raised = true
		}
	}
}

// crowded says that goroutines wait for processors.
func crowded() bool {
	began := time.Now()
	runtime.Gosched()
	return time.Since(began) > calmUnder
}

func idle(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// holdProcessor sleeps on this goroutine's processor, until the time has passed or the runtime wants it back, which it
// does every 10 ms.
func holdProcessor() {
	ts := syscall.NsecToTimespec(int64(calmEvery))
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // an early end is as good
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// growDescriptors makes the kernel's table of descriptors large before traffic comes, as far as the limit allows. Later,
// each doubling of it makes every thread that opens a connection wait 4 to 20 ms.
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
