package routing

import (
	"github.com/spillway-lb/spillway/internal/capacity"
)

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

// CacheRetention estimates, for each child, which part of a session's prompt is still cached when the session returns. A
// child whose KV cache is full of running requests retains no finished sessions. Without this estimate, sessions would be
// sent back to it for cache hits that never happen. It has one writer at a time.
type CacheRetention struct {
	byPath map[capacity.Path]*retentionEstimate
}

type retentionEstimate struct {
	fraction      float64
	reportsCached bool // a response has reported cached tokens; without one the engine may not report them at all
}

// NewCacheRetention returns estimates of 1 for all children.
func NewCacheRetention() *CacheRetention {
	return &CacheRetention{byPath: map[capacity.Path]*retentionEstimate{}}
}

// RecordAnswer updates the estimate of a child from a response: expected and actual cached tokens.
func (t *CacheRetention) RecordAnswer(child capacity.Path, expected, cached int) {
	if expected < minExpectedTokens {
		return
	}
	c := t.byPath[child]
	if c == nil {
		if len(t.byPath) >= maxRetentionPaths {
			clear(t.byPath)
		}
		c = &retentionEstimate{fraction: 1}
		t.byPath[child] = c
	}
	if c.reportsCached = c.reportsCached || cached > 0; c.reportsCached {
		c.fraction += retentionGain * (max(0, min(float64(cached)/float64(expected), 1)) - c.fraction)
	}
}

// FractionFor returns the expected part, 0 to 1, of a session's prompt that a child still has cached.
func (t *CacheRetention) FractionFor(child capacity.Path) float64 {
	if c := t.byPath[child]; c != nil {
		return c.fraction
	}
	return 1
}
