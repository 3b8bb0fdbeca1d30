package tenant

import "time"

const (
	budgetFloor = 10.0  // second tries a second that are always allowed, so that a quiet region can still retry
	budgetCap   = 100.0 // second tries that can be saved up
)

// Budget bounds second tries to a share of first ones, so that an outage is not answered with a storm. It has one writer
// at a time. The zero value starts full.
type Budget struct {
	spent float64
	at    time.Time
}

// Request counts one first try, which earns share of a second.
func (b *Budget) Request(share float64) { b.spent = max(b.spent-share, 0) }

// Take takes one second try; false when the budget is spent.
func (b *Budget) Take(now time.Time) bool {
	if now.After(b.at) {
		if !b.at.IsZero() {
			b.spent = max(b.spent-budgetFloor*now.Sub(b.at).Seconds(), 0)
		}
		b.at = now
	}
	if b.spent+1 > budgetCap {
		return false
	}
	b.spent++
	return true
}
