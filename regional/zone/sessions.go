package zone

import "github.com/spillway-lb/spillway/internal/capacity"

// maxSessions bounds one generation of sessions; there are two. A session takes about 100 bytes.
const maxSessions = 32 << 10

// Sessions remembers where sessions were served last. It has one writer at a time. A session that is not seen while so
// many others are is forgotten.
type Sessions struct {
	young, old map[uint64]home
}

type home struct {
	path   capacity.Path
	tokens int
}

// NewSessions knows of none.
func NewSessions() *Sessions { return &Sessions{young: map[uint64]home{}} }

// Served notes where a session's request was sent, and how long its prompt is in tokens.
func (s *Sessions) Served(key uint64, at capacity.Path, tokens int) {
	if key == 0 {
		return
	}
	if len(s.young) >= maxSessions {
		s.old, s.young = s.young, make(map[uint64]home, maxSessions/4)
	}
	s.young[key] = home{at, tokens}
}

// Find is where a session was served last, by the last of its keys that is known, and how long its prompt was.
func (s *Sessions) Find(keys ...uint64) (at capacity.Path, tokens int) {
	for i := len(keys) - 1; i >= 0; i-- {
		h, ok := s.young[keys[i]]
		if !ok {
			h, ok = s.old[keys[i]]
		}
		if ok && keys[i] != 0 {
			return h.path, h.tokens
		}
	}
	return capacity.Path{}, 0
}

// Len is how many sessions are remembered, those twice seen counted twice.
func (s *Sessions) Len() int { return len(s.young) + len(s.old) }
