package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
)

// silences are the answers that a Forwarder watches. They share one timer: an answer that does not stand still costs a
// place in a list, and to hear something costs the reading of a clock.
type silences struct {
	mu    sync.Mutex
	base  time.Time // that times are counted from
	first *silence
	timer *time.Timer
	armed bool
}

// silence is one answer that is cancelled when it stands still for too long.
type silence struct {
	of         *Forwarder
	life       *lifetime.Context
	last       atomic.Int64 // nanoseconds since base
	next, prev *silence
	over       bool
}

// watch begins to watch an answer, where there is a limit.
func (f *Forwarder) watch(s *silence, life *lifetime.Context) {
	if f.IdleTimeout <= 0 {
		return
	}
	q, now := &f.silences, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.base.IsZero() {
		q.base = now
	}
	s.of, s.life = f, life
	s.last.Store(int64(now.Sub(q.base)))
	if s.next = q.first; s.next != nil {
		s.next.prev = s
	}
	q.first = s
	if !q.armed {
		q.arm(f.IdleTimeout, f.look)
	}
}

func (q *silences) arm(d time.Duration, look func()) {
	q.armed = true
	if q.timer == nil {
		q.timer = time.AfterFunc(d, look)
		return
	}
	q.timer.Reset(d)
}

// heard says that something has come at a time.
func (s *silence) heard(now time.Time) {
	if s.of != nil {
		s.last.Store(int64(now.Sub(s.of.silences.base)))
	}
}

// look cancels what stands still, and looks again when the next may.
func (f *Forwarder) look() {
	q := &f.silences
	q.mu.Lock()
	now := int64(time.Since(q.base))
	wait := int64(f.IdleTimeout)
	var still *silence
	for s := q.first; s != nil; {
		next := s.next
		if left := s.last.Load() + int64(f.IdleTimeout) - now; left > 0 {
			wait = min(wait, left)
		} else {
			q.remove(s)
			s.next = still
			still = s
		}
		s = next
	}
	q.armed = false
	if q.first != nil {
		q.arm(time.Duration(wait), f.look)
	}
	q.mu.Unlock()
	for still != nil {
		s := still
		still = s.next
		s.life.End(errIdle)
	}
}

// remove takes an answer off the list. The lock is held.
func (q *silences) remove(s *silence) {
	s.over = true
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
}

// stop ends the watch.
func (s *silence) stop() {
	if s.of == nil {
		return
	}
	q := &s.of.silences
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.over {
		q.remove(s)
	}
}
