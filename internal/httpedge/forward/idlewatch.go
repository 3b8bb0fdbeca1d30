package forward

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

// idleWatchList holds the responses that a Forwarder watches for silence. They share one timer: an active
// response costs one list entry, and each piece one clock reading.
type idleWatchList struct {
	mu    sync.Mutex
	epoch time.Time // reference of lastActivity
	first *idleWatch
	timer *time.Timer
	armed bool
}

// idleWatch is one response that is cancelled after too long a silence.
type idleWatch struct {
	forwarder    *Forwarder
	ctx          *reqctx.Context
	lastActivity atomic.Int64 // nanoseconds since epoch
	next, prev   *idleWatch
	removed      bool
}

// startIdleWatch starts watching a response, if there is an idle timeout.
func (f *Forwarder) startIdleWatch(s *idleWatch, life *reqctx.Context) {
	if f.IdleTimeout <= 0 {
		return
	}
	q, now := &f.idleWatches, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.epoch.IsZero() {
		q.epoch = now
	}
	s.forwarder, s.ctx = f, life
	s.lastActivity.Store(int64(now.Sub(q.epoch)))
	if s.next = q.first; s.next != nil {
		s.next.prev = s
	}
	q.first = s
	if !q.armed {
		q.armTimer(f.IdleTimeout, f.cancelIdle)
	}
}

func (q *idleWatchList) armTimer(d time.Duration, look func()) {
	q.armed = true
	if q.timer == nil {
		q.timer = time.AfterFunc(d, look)
		return
	}
	q.timer.Reset(d)
}

// recordActivity records that data arrived at now.
func (s *idleWatch) recordActivity(now time.Time) {
	if s.forwarder != nil {
		s.lastActivity.Store(int64(now.Sub(s.forwarder.idleWatches.epoch)))
	}
}

// cancelIdle cancels stalled responses, and schedules the next check.
func (f *Forwarder) cancelIdle() {
	q := &f.idleWatches
	q.mu.Lock()
	now := int64(time.Since(q.epoch))
	wait := int64(f.IdleTimeout)
	var still *idleWatch
	for s := q.first; s != nil; {
		next := s.next
		if left := s.lastActivity.Load() + int64(f.IdleTimeout) - now; left > 0 {
			wait = min(wait, left)
		} else {
			q.removeWatch(s)
			s.next = still
			still = s
		}
		s = next
	}
	q.armed = false
	if q.first != nil {
		q.armTimer(time.Duration(wait), f.cancelIdle)
	}
	q.mu.Unlock()
	for still != nil {
		s := still
		still = s.next
		s.ctx.EndWithCause(errIdleTimeout)
	}
}

// removeWatch removes a response from the list. The lock must be held.
func (q *idleWatchList) removeWatch(s *idleWatch) {
	s.removed = true
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
}

// stopWatch ends the watch.
func (s *idleWatch) stopWatch() {
	if s.forwarder == nil {
		return
	}
	q := &s.forwarder.idleWatches
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.removed {
		q.removeWatch(s)
	}
}
