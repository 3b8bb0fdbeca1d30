// Package poison records requests under which workers died, so that a request that kills its worker is not sent to one
// worker after another. DeathMemory holds the records and returns a DeathVerdict for a request. It uses fingerprints
// only: it never sees a prompt, has no clock and no lock, and takes no action on a request itself.
//
// # How many workers a request can kill
//
// Two within DeathRetention, if fewer than MinSharedRequests requests were at the worker at the first death: the first
// death makes the request Suspect, the second Condemned.
//
// Three, if the first death was shared with at least MinSharedRequests. That death only makes the request SharedDeath:
// at most one of these requests is the cause, and a worker with many requests usually dies for another reason. All its
// requests are retried, often on the same few workers. If those die too (a spreading overload, a rolling restart
// without drains), a request can have two deaths without having caused either. Condemning it at the second would refuse
// every long request that met two restarts. Three deaths within DeathRetention are improbable for a harmless request,
// and a second death makes it Suspect: it is tried on one worker at a time.
//
// Each memory counts shared deaths itself: SharedDeath is not reported to other tiers, because it is no evidence
// against a single request. Where zones share a gateway, a request that always runs among others can therefore be
// SharedDeath once in each zone, and kills one worker per zone and two more.
package poison

import (
	"hash/maphash"
	"time"
)

// DeathVerdict is the state of a request. A greater value is worse.
type DeathVerdict uint8

// The verdicts.
const (
	// Clear: no worker is known to have died under the request.
	Clear DeathVerdict = iota
	// SharedDeath: a worker died under it and others. It is served like any other.
	SharedDeath
	// Suspect: it may be tried once more, on one worker.
	Suspect
	// Condemned: it is refused.
	Condemned
)

// String returns the name of the verdict in logs.
func (v DeathVerdict) String() string {
	return [...]string{"clear", "seen", "suspect", "condemned"}[min(v, Condemned)]
}

// ComputeFingerprint returns the fingerprint of a request from its tenant, model and body. It is keyed by the
// seed, and never 0.
func ComputeFingerprint(seed maphash.Seed, tenant, model string, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(tenant) // writes to a hash never fail
	_ = h.WriteByte(0)
	_, _ = h.WriteString(model)
	_ = h.WriteByte(0)
	_, _ = h.Write(body)
	return max(h.Sum64(), 1)
}

// requestEntry is one recorded request.
type requestEntry struct {
	verdict     DeathVerdict
	lastDeathAt time.Time // of the last death
	lastDeath   uint64    // the identity of that death
	openTrials  int       // further attempts in progress
}

// DeathMemory records the requests under which workers died. The zero value is ready to use. It has one owner
// and no lock.
type DeathMemory struct {
	entries map[uint64]*requestEntry
}

// findEntry returns the entry of a request, or nil if none is valid.
func (m *DeathMemory) findEntry(print uint64, now time.Time) *requestEntry {
	e := m.entries[print]
	if e != nil && now.Sub(e.lastDeathAt) >= DeathRetention {
		delete(m.entries, print)
		return nil
	}
	return e
}

// VerdictFor returns the verdict on a request at now.
func (m *DeathMemory) VerdictFor(print uint64, now time.Time) DeathVerdict {
	if len(m.entries) == 0 {
		return Clear
	}
	if e := m.findEntry(print, now); e != nil {
		return e.verdict
	}
	return Clear
}

// RecordDeath records the death of a worker under a request, and returns the new verdict. event identifies the
// death: one that ends several copies of the request counts once. together is the number of requests at the
// worker. The first death under fewer than MinSharedRequests makes a suspect, the second condemns it; otherwise
// it takes one death more.
func (m *DeathMemory) RecordDeath(print, event uint64, together int, now time.Time) DeathVerdict {
	e := m.findEntry(print, now)
	if e == nil {
		e = m.addEntry(print)
	} else if e.lastDeath == event {
		return e.verdict
	}
	e.lastDeath, e.lastDeathAt = event, now
	switch e.verdict {
	case Clear:
		e.verdict = Suspect
		if together >= MinSharedRequests {
			e.verdict = SharedDeath
		}
	case SharedDeath:
		e.verdict = Suspect
	default:
		e.verdict = Condemned
	}
	return e.verdict
}

// RaiseVerdict applies the verdict of another tier, if it is worse than the local one.
func (m *DeathMemory) RaiseVerdict(print uint64, v DeathVerdict, now time.Time) {
	e := m.findEntry(print, now)
	if e == nil {
		if v == Clear {
			return
		}
		e = m.addEntry(print)
	}
	if v > e.verdict {
		e.verdict, e.lastDeathAt = v, now
	}
}

// RecordSuccess records a complete response: no worker died under the request, and its entry is removed.
func (m *DeathMemory) RecordSuccess(print uint64) {
	if len(m.entries) > 0 {
		delete(m.entries, print)
	}
}

// TryRequest checks an arriving request. ok is false if it must be refused: it is condemned, or it is suspect
// and an attempt is in progress. trial marks the one further attempt, which ends with EndTrial.
func (m *DeathMemory) TryRequest(print uint64, now time.Time) (trial, ok bool) {
	switch m.VerdictFor(print, now) {
	case Condemned:
		return false, false
	case Suspect:
		e := m.entries[print]
		if e.openTrials > 0 {
			return false, false
		}
		e.openTrials++
		return true, true
	}
	return false, true
}

// BeginTrial records the one further attempt of a request under which a worker has just died. It ends with
// EndTrial.
func (m *DeathMemory) BeginTrial(print uint64) {
	if e := m.entries[print]; e != nil {
		e.openTrials++
	}
}

// EndTrial records the end of a further attempt, with any result.
func (m *DeathMemory) EndTrial(print uint64) {
	if e := m.entries[print]; e != nil && e.openTrials > 0 {
		e.openTrials--
	}
}

// Len returns the number of recorded requests.
func (m *DeathMemory) Len() int { return len(m.entries) }

// addEntry makes room for a request and adds it.
func (m *DeathMemory) addEntry(print uint64) *requestEntry {
	if m.entries == nil {
		m.entries = map[uint64]*requestEntry{}
	}
	if len(m.entries) >= MaxEntries {
		var oldest uint64
		var at time.Time
		for p, e := range m.entries {
			if oldest == 0 || e.lastDeathAt.Before(at) || e.lastDeathAt.Equal(at) && p < oldest {
				oldest, at = p, e.lastDeathAt
			}
		}
		delete(m.entries, oldest)
	}
	e := &requestEntry{}
	m.entries[print] = e
	return e
}
