package dns

import (
	"net/netip"
	"sync"
	"time"
)

// directPath answers the questions of Server.Answer: it holds one fast path.
type directPath struct {
	mu   sync.Mutex
	fast fastPath
}

// Answer appends to dst[:0] the answer to a UDP message; ok is false if there is none. It serves callers that receive
// queries without a socket, uses the same two paths, and is not counted.
func (s *Server) Answer(dst, msg []byte, from netip.Addr) (out []byte, ok bool) {
	s.direct.mu.Lock()
	defer s.direct.mu.Unlock()
	if s.direct.fast.handler == nil {
		s.direct.fast = newFastPath(&s.handler)
	}
	if cap(dst) < maxUDPSize {
		dst = make([]byte, maxUDPSize)
	}
	dst = dst[:cap(dst)]
	if n, _, quick := s.direct.fast.answerQuery(dst, msg, from, time.Now()); quick {
		return dst[:n], n > 0
	}
	return s.answerAndObserve(dst[:0], msg, from, UDP)
}
