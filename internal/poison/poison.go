package poison

import (
	"hash/maphash"
	"time"
)

// Verdict is what is known of a request. Greater is worse.
type Verdict uint8

// The verdicts.
const (
	// Clear: no worker is known to have died under the request.
	Clear Verdict = iota
	// Seen: a worker died under it and others at once. It is served as any other.
	Seen
	// Suspect: it may be made once more, on one worker.
	Suspect
	// Condemned: it is refused.
	Condemned
)

// String names the verdict in logs.
func (v Verdict) String() string {
	return [...]string{"clear", "seen", "suspect", "condemned"}[min(v, Condemned)]
}

// Fingerprint identifies a request by its tenant, its model and its body. It is keyed by the seed, and never 0.
func Fingerprint(seed maphash.Seed, tenant, model string, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(tenant) // no Write of a hash fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(model)
	_ = h.WriteByte(0)
	_, _ = h.Write(body)
	return max(h.Sum64(), 1)
}

// entry is one request that is remembered.
type entry struct {
	verdict Verdict
	at      time.Time // of the last death
	event   uint64    // that death
	trials  int       // further attempts under way
}

// Memory is what is remembered. The zero value is ready. It has one owner and no lock.
type Memory struct {
	entries map[uint64]*entry
}

// find returns the entry of a request; nil when none counts any more.
func (m *Memory) find(print uint64, now time.Time) *entry {
	e := m.entries[print]
	if e != nil && now.Sub(e.at) >= Keep {
		delete(m.entries, print)
		return nil
	}
	return e
}

// Verdict is what is known of a request now.
func (m *Memory) Verdict(print uint64, now time.Time) Verdict {
	if len(m.entries) == 0 {
		return Clear
	}
	if e := m.find(print, now); e != nil {
		return e.verdict
	}
	return Clear
}

// Died books the death of a worker under a request, and returns the verdict after it. event names the death: one that takes
// several copies of the request counts once. together is how many requests were at the worker. The first death under fewer
// than Crowd requests makes a suspect, a second death condemns it; under a crowd it takes one death more.
func (m *Memory) Died(print, event uint64, together int, now time.Time) Verdict {
	e := m.find(print, now)
	if e == nil {
		e = m.add(print)
	} else if e.event == event {
		return e.verdict
	}
	e.event, e.at = event, now
	switch e.verdict {
	case Clear:
		e.verdict = Suspect
		if together >= Crowd {
			e.verdict = Seen
		}
	case Seen:
		e.verdict = Suspect
	default:
		e.verdict = Condemned
	}
	return e.verdict
}

// Raise takes over the verdict of another tier, if it is worse than what is known here.
func (m *Memory) Raise(print uint64, v Verdict, now time.Time) {
	e := m.find(print, now)
	if e == nil {
		if v == Clear {
			return
		}
		e = m.add(print)
	}
	if v > e.verdict {
		e.verdict, e.at = v, now
	}
}

// Survived books an answer that came to its end: no worker died under the request, and nothing is held against it any more.
func (m *Memory) Survived(print uint64) {
	if len(m.entries) > 0 {
		delete(m.entries, print)
	}
}

// Try asks for a request that arrives. ok is false when it may not be made: it is condemned, or it is suspect and an attempt
// is under way. trial says that it is the one further attempt, which ends with EndTrial.
func (m *Memory) Try(print uint64, now time.Time) (trial, ok bool) {
	switch m.Verdict(print, now) {
	case Condemned:
		return false, false
	case Suspect:
		e := m.entries[print]
		if e.trials > 0 {
			return false, false
		}
		e.trials++
		return true, true
	}
	return false, true
}

// BeginTrial books the one further attempt of a request under which a worker has just died. It ends with EndTrial.
func (m *Memory) BeginTrial(print uint64) {
	if e := m.entries[print]; e != nil {
		e.trials++
	}
}

// EndTrial books the end of a further attempt, however it ended.
func (m *Memory) EndTrial(print uint64) {
	if e := m.entries[print]; e != nil && e.trials > 0 {
		e.trials--
	}
}

// Len is how many requests are remembered.
func (m *Memory) Len() int { return len(m.entries) }

// add makes room for a request and remembers it.
func (m *Memory) add(print uint64) *entry {
	if m.entries == nil {
		m.entries = map[uint64]*entry{}
	}
	if len(m.entries) >= MaxEntries {
		var oldest uint64
		var at time.Time
		for p, e := range m.entries {
			if oldest == 0 || e.at.Before(at) || e.at.Equal(at) && p < oldest {
				oldest, at = p, e.at
			}
		}
		delete(m.entries, oldest)
	}
	e := &entry{}
	m.entries[print] = e
	return e
}
