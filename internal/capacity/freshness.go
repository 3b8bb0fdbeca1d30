package capacity

import "time"

// Freshness says how far a statement can be trusted. Absence of news is "stale" and then "lost", never "zero".
type Freshness uint8

const (
	// Fresh statements count as they are.
	Fresh Freshness = iota
	// Stale statements are usable but unproven: choose on them, credit nothing new, never grow a share because of them.
	Stale
	// Lost children are chosen only when nothing else is left; their last words are kept for that case.
	Lost
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

// Thresholds are the ages, since arrival by the receiver's monotonic clock, at which a statement becomes Stale and Lost.
type Thresholds struct {
	// Stale is the age at which a statement becomes stale; zero means 750 ms, three of the default intervals.
	Stale time.Duration
	// Lost is the age at which a child counts as lost; zero means 1,250 ms.
	Lost time.Duration
}

func (t Thresholds) orDefaults() Thresholds {
	if t.Stale <= 0 {
		t.Stale = 750 * time.Millisecond
	}
	if t.Lost <= 0 {
		t.Lost = 1250 * time.Millisecond
	}
	t.Lost = max(t.Lost, t.Stale)
	return t
}

func (t Thresholds) state(age time.Duration) Freshness {
	switch {
	case age < t.Stale:
		return Fresh
	case age < t.Lost:
		return Stale
	default:
		return Lost
	}
}
