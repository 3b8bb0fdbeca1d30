package dns

import (
	"net/netip"
	"sync"
	"time"
)

// inHand is what answers questions that come by Answer: one reader's fast path.
type inHand struct {
	mu   sync.Mutex
	fast fast
}

// Answer appends to dst[:0] what a message over UDP is answered; ok is false where it is not answered. It is for whoever
// brings questions by another way than a socket, goes the same two paths, and is not counted.
func (s *Server) Answer(dst, msg []byte, from netip.Addr) (out []byte, ok bool) {
	s.inHand.mu.Lock()
	defer s.inHand.mu.Unlock()
	if s.inHand.fast.h == nil {
		s.inHand.fast = newFast(&s.handler)
	}
	if cap(dst) < ourSize {
		dst = make([]byte, ourSize)
	}
	dst = dst[:cap(dst)]
	if n, _, quick := s.inHand.fast.answer(dst, msg, from, time.Now()); quick {
		return dst[:n], n > 0
	}
	return s.answer(dst[:0], msg, from, UDP)
}
