package discover

import (
	"slices"
	"time"
)

// track is what one question is believed to mean. A lookup that fails changes nothing, however often it does; an answer
// without any record is believed after a grace, for a blip in DNS must not empty a zone.
type track struct {
	records []record
	asked   time.Time // when it was last told anything that was believed
	empty   time.Time // since when answers are empty and not believed
	failing bool
	used    bool // in this round
}

// news says what a lookup has changed, so that it can be logged once.
type news uint8

const (
	nothing news = iota
	failed       // lookups begin to fail
	emptied      // answers begin to be empty, and are not believed yet
	gave         // the grace is over: an empty answer is believed
	mended       // after failed or emptied
)

// learn takes in the outcome of one lookup.
func (t *track) learn(recs []record, err error, grace time.Duration, now time.Time) news {
	wasFailing := t.failing
	if t.failing = err != nil; t.failing {
		if wasFailing {
			return nothing
		}
		return failed
	}
	if len(recs) > 0 || len(t.records) == 0 {
		wasEmpty := !t.empty.IsZero()
		t.records, t.asked, t.empty = clean(recs), now, time.Time{}
		if wasFailing || wasEmpty {
			return mended
		}
		return nothing
	}
	if t.empty.IsZero() {
		t.empty = now
		return emptied
	}
	if now.Sub(t.empty) < grace {
		if wasFailing {
			return mended
		}
		return nothing
	}
	t.records, t.asked, t.empty = nil, now, time.Time{}
	return gave
}

// kept is how old the records are that are used although the name does not answer with them any more; 0 when it does.
func (t *track) kept(now time.Time) time.Duration {
	if len(t.records) == 0 || !t.failing && t.empty.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.asked))
}

// clean puts records in order, each once: servers turn them round with each answer.
func clean(recs []record) []record {
	slices.SortFunc(recs, func(a, b record) int {
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
	return slices.CompactFunc(recs, func(a, b record) bool { return a.addr == b.addr && a.target == b.target && a.port == b.port })
}
