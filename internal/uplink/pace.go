package uplink

import "time"

const (
	// activeInterval is the time between summaries of a child with changes, unless its parents request a longer gap.
	activeInterval = 100 * time.Millisecond
	// activeFor is how long after its last change a child counts as active.
	activeFor = time.Second
	// maxSummaryRate is how many summaries a parent accepts from all its children, per second: the load of a fifth of
	// a core. With more than 450 children it requests a longer gap from each.
	maxSummaryRate = 4500
	// maxSummaryGap is the longest gap that a parent requests: with a longer one its children would count as stale.
	maxSummaryGap = 500 * time.Millisecond
)

// gapForChildren is the gap between one child's summaries that a parent with that many children requests; 0 if none.
func gapForChildren(children int) time.Duration {
	gap := time.Duration(children) * time.Second / maxSummaryRate
	if gap <= activeInterval {
		return 0
	}
	return min(gap, maxSummaryGap)
}

// Bounds on the messages of one child. A correct child stays far below: it sends nothing within minSummaryGap, and a
// snapshot at most twice a second.
const (
	datagramRate      = 250 // per second; further ones are skipped unread
	datagramBurst     = 500
	snapshotRate      = 5
	snapshotBurst     = 10
	maxExcessMessages = 2000 // messages over a bound that end a session
)

// messageBucket is a token bucket. It has one user.
type messageBucket struct {
	rate, burst float64
	tokens      float64
	updatedAt   time.Time
	excess      int // messages over the bound
}

func newMessageBucket(rate, burst float64) messageBucket {
	return messageBucket{rate: rate, burst: burst, tokens: burst}
}

// takeToken returns false for a message over the bound.
func (a *messageBucket) takeToken(now time.Time) bool {
	if !a.updatedAt.IsZero() {
		a.tokens = min(a.burst, a.tokens+max(now.Sub(a.updatedAt), 0).Seconds()*a.rate)
	}
	a.updatedAt = now
	if a.tokens < 1 {
		a.excess++
		return false
	}
	a.tokens--
	return true
}
