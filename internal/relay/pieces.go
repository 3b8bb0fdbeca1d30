package relay

import (
	"context"
	"io"
	"sync"
	"time"
)

// pieces returns how the next piece of a body is had, which is valid until the one after it, and what to do in the end. A
// body that has its pieces in a buffer of its own is asked for them there: none is held for it while it is silent.
func (f *Forwarder) pieces(body io.Reader) (next func() ([]byte, error), done func()) {
	if own, ok := body.(interface{ Next() ([]byte, error) }); ok {
		return own.Next, func() {}
	}
	buf := f.buffer()
	return func() ([]byte, error) {
		n, err := body.Read(*buf)
		return (*buf)[:n], err
	}, func() { f.buffers.Put(buf) }
}

func (f *Forwarder) buffer() *[]byte {
	if b, ok := f.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, bufferBytes)
	return &b
}

// silence cancels an answer that stands still for too long. To hear something costs the reading of a clock: the timer
// is set anew only when it fires.
type silence struct {
	limit  time.Duration
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	last  time.Time
	timer *time.Timer
	over  bool
}

// watch is nil when there is no limit.
func (f *Forwarder) watch(cancel context.CancelCauseFunc) *silence {
	if f.IdleTimeout <= 0 {
		return nil
	}
	s := &silence{limit: f.IdleTimeout, cancel: cancel, last: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.limit, s.look)
	return s
}

func (s *silence) heard() {
	s.mu.Lock()
	s.last = time.Now()
	s.mu.Unlock()
}

func (s *silence) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if left := s.limit - time.Since(s.last); left > 0 {
		s.timer.Reset(left)
		return
	}
	s.over = true
	s.cancel(errIdle)
}

func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
}
