package uplink

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// reconnectBackoff is decorrelated jitter: each wait is drawn between the minimum and three times the last one, so
// that children that lost one parent together do not reconnect together.
type reconnectBackoff struct{ last time.Duration }

func (b *reconnectBackoff) nextDelay(rng *rand.Rand) time.Duration {
	top := min(max(3*b.last, 2*minBackoff), maxBackoff)
	b.last = minBackoff + time.Duration(rng.Int64N(int64(top-minBackoff)+1))
	return b.last
}

func (b *reconnectBackoff) resetDelay() { b.last = 0 }
