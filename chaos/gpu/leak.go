package gpu

import "time"

// leakState is the progress of ModeLeak. It is guarded by the chaosState's lock.
type leakState struct {
	leakedRequests int // requests since the start of the process, each of which leaked memory
	restartTimer   *time.Timer
}

// leakMemory leaks the memory of one request. The request that exhausts the memory ends the process: running requests
// fail, and no request is answered until the restart.
func (s *Server) leakMemory() {
	c := s.chaos.loadCurrent()
	if c.Mode != ModeLeak || s.chaos.memoryGone.Load() {
		return
	}
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.leak.leakedRequests++; s.chaos.leak.leakedRequests < c.Requests {
		return
	}
	restart, _ := time.ParseDuration(c.Restart) // checked when it was set
	turn := s.chaos.generation
	s.chaos.memoryGone.Store(true)
	s.driver.setPace(false, 1, true)
	s.chaos.leak.restartTimer = time.AfterFunc(restart, func() { s.restartProcess(turn) })
	s.log.Warn("the worker has leaked all its memory", "requests", s.chaos.leak.leakedRequests, "restart", c.Restart)
}

// restartProcess simulates the process that a supervisor starts after the failure: an empty cache, counters at zero,
// and the same leak.
func (s *Server) restartProcess(turn uint64) {
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.generation == turn {
		s.driver.restartEngine()
		s.metrics.resetCounts()
		s.resetLeak()
	}
}

// resetLeak resets the leaked memory. The lock must be held.
func (s *Server) resetLeak() {
	if t := s.chaos.leak.restartTimer; t != nil {
		t.Stop()
	}
	s.chaos.leak = leakState{}
	s.chaos.memoryGone.Store(false)
}

// restartEngine resets the engine and accepts requests again.
func (d *engineDriver) restartEngine() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAll()
	d.engine.Restart()
	d.outOfMemory = false
	d.wakeLoop()
}

func (m *workerMetrics) resetCounts() {
	for o := range m.endedRequests {
		m.endedRequests[o].Store(0)
	}
}
