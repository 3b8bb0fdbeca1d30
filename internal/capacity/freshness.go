package capacity

import "time"

// Freshness is the state of a child by the age of its summary. A missing summary makes a child stale and then
// unreachable; it is never counted as zero capacity.
type Freshness uint8

const (
	// Fresh summaries count in full.
	Fresh Freshness = iota
	// Stale summaries are used for choices. They give no credit to new work, and no share grows because of them.
	Stale
	// Unreachable children are chosen only when nothing else is left. Their last summary is kept for that case.
	Unreachable
)

// String returns the state's name in status, metrics and explanations.
func (f Freshness) String() string {
	switch f {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	default:
		return "lost"
	}
}

// FreshnessThresholds are the ages, since arrival by the receiver's monotonic clock, at which a summary becomes stale
// and its child unreachable.
type FreshnessThresholds struct {
	// StaleAfter is the age at which a summary becomes stale. Zero means 750 ms, three default intervals.
	StaleAfter time.Duration
	// UnreachableAfter is the age at which a child becomes unreachable. Zero means 1,250 ms.
	UnreachableAfter time.Duration
}

func (t FreshnessThresholds) withDefaults() FreshnessThresholds {
	if t.StaleAfter <= 0 {
		t.StaleAfter = 750 * time.Millisecond
	}
	if t.UnreachableAfter <= 0 {
		t.UnreachableAfter = 1250 * time.Millisecond
	}
	t.UnreachableAfter = max(t.UnreachableAfter, t.StaleAfter)
	return t
}

func (t FreshnessThresholds) freshnessAt(age time.Duration) Freshness {
	switch {
	case age < t.StaleAfter:
		return Fresh
	case age < t.UnreachableAfter:
		return Stale
	default:
		return Unreachable
	}
}
