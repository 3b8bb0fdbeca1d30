package uplink

import "time"

const (
	// movingInterval is the time between statements of a child that has something new to say, as far as its parents want
	// them so close together.
	movingInterval = 100 * time.Millisecond
	// movingFor is how long after its last news a child counts as moving.
	movingFor = time.Second
	// paceRate is how many statements a parent wants of all its children, in a second: what a fifth of a core can take.
	// With more than 450 children it asks each for a longer gap.
	paceRate = 4500
	// paceMost is the longest gap that a parent can ask for: with a longer one its children would count as stale.
	paceMost = 500 * time.Millisecond
)

// paceOf is the gap between one child's statements that a parent of so many asks for; 0 when it takes them as they come.
func paceOf(children int) time.Duration {
	gap := time.Duration(children) * time.Second / paceRate
	if gap <= movingInterval {
		return 0
	}
	return min(gap, paceMost)
}

// Bounds of what one child may say. An honest one stays far below: it says nothing within statementGap, and a snapshot at
// most twice a second.
const (
	datagramRate  = 250 // a second; more of them are passed over unread
	datagramBurst = 500
	snapshotRate  = 5
	snapshotBurst = 10
	floodAfter    = 2000 // messages over a bound that end a session
)

// allowance is a token bucket. It has one user.
type allowance struct {
	rate, burst float64
	left        float64
	at          time.Time
	over        int // messages over the bound
}

func newAllowance(rate, burst float64) allowance {
	return allowance{rate: rate, burst: burst, left: burst}
}

// take is false for a message over the bound.
func (a *allowance) take(now time.Time) bool {
	if !a.at.IsZero() {
		a.left = min(a.burst, a.left+max(now.Sub(a.at), 0).Seconds()*a.rate)
	}
	a.at = now
	if a.left < 1 {
		a.over++
		return false
	}
	a.left--
	return true
}
