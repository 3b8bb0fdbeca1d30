package capacity

import "time"

// Freshness says how far a statement can be trusted. Absence of news is "stale" and then "lost", never "zero".
type Freshness uint8

const (
	// Fresh statements count as they are.
	Fresh Freshness = iota
	// Stale statements are usable but unproven: choose on them, credit nothing new, never grow a share because of them.
	Stale
	// Unreachable children are chosen only when nothing else is left; their last words are kept for that case.
	Unreachable
)

// String is the state's name in status, metrics and explain records.
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

// FreshnessThresholds are the ages, since arrival by the receiver's monotonic clock, at which a statement becomes Stale and Lost.
type FreshnessThresholds struct {
	// StaleAfter is the age at which a statement becomes stale; zero means 750 ms, three of the default intervals.
	StaleAfter time.Duration
	// UnreachableAfter is the age at which a child counts as lost; zero means 1,250 ms.
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
