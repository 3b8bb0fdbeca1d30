package routing

import "github.com/spillway-lb/spillway/internal/capacity"

// SessionTable stores the child that served each session last. It has one writer at a time. It keeps two generations of
// maxSessions sessions; one that is not seen for a whole generation is dropped.
type SessionTable struct {
	current, previous map[uint64]sessionRecord
}

type sessionRecord struct {
	path   capacity.Path
	tokens int
}

// NewSessionTable returns an empty table.
func NewSessionTable() *SessionTable { return &SessionTable{current: map[uint64]sessionRecord{}} }

// RecordServed records the child to which a session's request was sent, and the prompt's length in tokens.
func (s *SessionTable) RecordServed(key uint64, at capacity.Path, tokens int) {
	if key == 0 {
		return
	}
	if len(s.current) >= maxSessions {
		s.previous, s.current = s.current, make(map[uint64]sessionRecord, maxSessions/4)
	}
	s.current[key] = sessionRecord{at, tokens}
}

// FindLatest returns where a session was served last, by the last of its keys in the table, and the length of its prompt
// then.
func (s *SessionTable) FindLatest(keys ...uint64) (at capacity.Path, tokens int) {
	for i := len(keys) - 1; i >= 0; i-- {
		h, ok := s.current[keys[i]]
		if !ok {
			h, ok = s.previous[keys[i]]
		}
		if ok && keys[i] != 0 {
			return h.path, h.tokens
		}
	}
	return capacity.Path{}, 0
}

// Len returns the number of entries; a session in both generations counts twice.
func (s *SessionTable) Len() int { return len(s.current) + len(s.previous) }
