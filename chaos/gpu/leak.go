package gpu

import "time"

// leakState is the progress of ModeLeak. It is guarded by the chaosState's lock.
type leakState struct {
	leakedRequests int // requests since the start of the process, each of which leaked memory
	restartTimer   *time.Timer
}

// leakMemory leaks the memory of one request. The request that exhausts the memory ends the process: running requests
// fail, and no request is answered until the restart.
func (b *chaosState) leakMemory() {
	c := b.loadCurrent()
	if c.Mode != ModeLeak || b.memoryGone.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leak.leakedRequests++; b.leak.leakedRequests < c.Requests {
		return
	}
	restart, _ := time.ParseDuration(c.Restart) // checked when it was set
	turn := b.generation
	b.memoryGone.Store(true)
	b.driver.setPace(false, 1, true)
	b.leak.restartTimer = time.AfterFunc(restart, func() { b.restartProcess(turn) })
	b.log.Warn("the worker has leaked all its memory", "requests", b.leak.leakedRequests, "restart", c.Restart)
}

// restartProcess simulates the process that a supervisor starts after the failure: an empty cache, counters at zero,
// and the same leak.
func (b *chaosState) restartProcess(turn uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.generation == turn {
		b.driver.restartEngine()
		b.metrics.resetCounts()
		b.resetLeak()
	}
}

// resetLeak resets the leaked memory. The lock must be held.
func (b *chaosState) resetLeak() {
	if t := b.leak.restartTimer; t != nil {
		t.Stop()
	}
	b.leak = leakState{}
	b.memoryGone.Store(false)
}
