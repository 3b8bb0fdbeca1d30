package gpu

import "time"

// leak is what ModeLeak has done so far. It is guarded by the chaosBox's lock.
type leak struct {
	held    int // requests since the start of the process, each of which left memory behind
	rebirth *time.Timer
}

// seep lets one request leave its memory behind. The one that takes the last of it ends the process: what runs fails,
// and nothing is answered until it has started anew.
func (s *Server) seep() {
	c := s.chaos.get()
	if c.Mode != ModeLeak || s.chaos.out.Load() {
		return
	}
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.leak.held++; s.chaos.leak.held < c.Requests {
		return
	}
	restart, _ := time.ParseDuration(c.Restart) // checked when it was set
	turn := s.chaos.turn
	s.chaos.out.Store(true)
	s.driver.pace(false, 1, true)
	s.chaos.leak.rebirth = time.AfterFunc(restart, func() { s.restart(turn) })
	s.log.Warn("the worker has leaked all its memory", "requests", s.chaos.leak.held, "restart", c.Restart)
}

// restart is the process that a supervisor starts in place of the one that died: an empty cache, counters at zero, and
// the same leak.
func (s *Server) restart(turn uint64) {
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.turn == turn {
		s.driver.restart()
		s.metrics.restart()
		s.plug()
	}
}

// plug forgets what has leaked. The caller holds the lock.
func (s *Server) plug() {
	if t := s.chaos.leak.rebirth; t != nil {
		t.Stop()
	}
	s.chaos.leak = leak{}
	s.chaos.out.Store(false)
}

// restart empties the engine and lets it take requests again.
func (d *driver) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAll()
	d.engine.Restart()
	d.dead = false
	d.nudge()
}

func (m *metrics) restart() {
	for o := range m.ended {
		m.ended[o].Store(0)
	}
}
