package uplink

import (
	"math/rand/v2"
	"time"
)

const (
	backoffLeast = 50 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// backoff is decorrelated jitter: each wait is drawn between the least and three times the last, so that children that
// lost one parent together do not come back together.
type backoff struct{ last time.Duration }

func (b *backoff) next(rng *rand.Rand) time.Duration {
	top := min(max(3*b.last, 2*backoffLeast), backoffMost)
	b.last = backoffLeast + time.Duration(rng.Int64N(int64(top-backoffLeast)+1))
	return b.last
}

func (b *backoff) reset() { b.last = 0 }
