package discover

import (
	"slices"
	"time"
)

// recordCache holds the records in force for one question. A failed lookup changes nothing. An empty answer takes
// effect after a grace period, because a short fault in DNS must not empty a zone.
type recordCache struct {
	records       []dnsRecord
	learnedAt     time.Time // time of the last answer that took effect
	emptySince    time.Time // since when answers are empty and not in force
	failing       bool
	usedThisRound bool // looked up in this round
}

// cacheChange is a change of state, for logging once.
type cacheChange uint8

const (
	changeNone      cacheChange = iota
	changeFailing               // lookups begin to fail
	changeEmpty                 // answers begin to be empty; the old records stay in force
	changeGraceOver             // the grace period is over: the empty answer takes effect
	changeRecovered             // after failures or empty answers
)

// applyLookup applies the outcome of one lookup.
func (t *recordCache) applyLookup(recs []dnsRecord, err error, grace time.Duration, now time.Time) cacheChange {
	wasFailing := t.failing
	if t.failing = err != nil; t.failing {
		if wasFailing {
			return changeNone
		}
		return changeFailing
	}
	if len(recs) > 0 || len(t.records) == 0 {
		wasEmpty := !t.emptySince.IsZero()
		t.records, t.learnedAt, t.emptySince = sortUnique(recs), now, time.Time{}
		if wasFailing || wasEmpty {
			return changeRecovered
		}
		return changeNone
	}
	if t.emptySince.IsZero() {
		t.emptySince = now
		return changeEmpty
	}
	if now.Sub(t.emptySince) < grace {
		if wasFailing {
			return changeRecovered
		}
		return changeNone
	}
	t.records, t.learnedAt, t.emptySince = nil, now, time.Time{}
	return changeGraceOver
}

// staleFor is the age of records in force that the name no longer resolves to; 0 if it does.
func (t *recordCache) staleFor(now time.Time) time.Duration {
	if len(t.records) == 0 || !t.failing && t.emptySince.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.learnedAt))
}

// sortUnique sorts records and removes duplicates: servers rotate them.
func sortUnique(recs []dnsRecord) []dnsRecord {
	slices.SortFunc(recs, func(a, b dnsRecord) int {
		if c := int(a.priority) - int(b.priority); c != 0 {
			return c
		}
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		if a.target != b.target {
			if a.target < b.target {
				return -1
			}
			return 1
		}
		if c := int(a.port) - int(b.port); c != 0 {
			return c
		}
		return int(b.weight) - int(a.weight)
	})
	return slices.CompactFunc(recs, func(a, b dnsRecord) bool { return a.addr == b.addr && a.target == b.target && a.port == b.port })
}
