// Package backoff computes the waits between the tries of what failed. It does not wait, and draws no random numbers of
// its own: callers pass them, so that a simulation can be repeated. That is why it is not github.com/jpillora/backoff,
// the one such library in the module graph, which draws from the global source and knows no decorrelated jitter.
package backoff

import (
	"math/rand/v2"
	"time"
)

// DelayAfter is the wait after the given number of failures in a row: first after one, doubled after each further one,
// and at most longest.
func DelayAfter(first, longest time.Duration, failures int) time.Duration {
	d := first
	for i := 1; i < failures && d < longest; i++ {
		if d > longest/2 {
			return longest
		}
		d *= 2
	}
	return min(d, longest)
}

// SpreadAround varies a wait by up to the given share of it in both directions. random is from 0 to 1.
func SpreadAround(d time.Duration, share, random float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*random))
}

// Doubling are the waits of one loop: First after the first failure, doubled up to Longest.
type Doubling struct {
	First, Longest time.Duration
	failures       int
}

// NextDelay counts a failure and returns the wait after it.
func (b *Doubling) NextDelay() time.Duration {
	b.failures++
	return DelayAfter(b.First, b.Longest, b.failures)
}

// Reset makes the next wait the first again, after a success.
func (b *Doubling) Reset() { b.failures = 0 }

// Decorrelated are waits of one loop that are drawn between First and three times the last one, up to Longest. Loops
// that fail together therefore do not try again together. The first wait is at most twice First.
type Decorrelated struct {
	First, Longest time.Duration
	last           time.Duration
}

// NextDelay draws the next wait.
func (b *Decorrelated) NextDelay(rng *rand.Rand) time.Duration {
	top := min(max(3*b.last, 2*b.First), b.Longest)
	b.last = b.First + time.Duration(rng.Int64N(int64(top-b.First)+1))
	return b.last
}

// Failing reports whether a wait was drawn since the last success.
func (b *Decorrelated) Failing() bool { return b.last != 0 }

// Reset makes the next wait a first one again, after a success.
func (b *Decorrelated) Reset() { b.last = 0 }
