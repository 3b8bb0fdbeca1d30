package zone

import (
	"math/rand/v2"
	"time"
)

const (
	// maxAllowances bounds the pairs of peer and model that are kept account of.
	maxAllowances = 4096
	// After a refusal a peer is left alone for this long, doubled with each refusal in a row up to the most.
	pauseLeast = 500 * time.Millisecond
	pauseMost  = 8 * time.Second
)

// Spills is what this gateway may still send to each peer region for each model, and who has refused lately. It has one writer
// at a time. A nil Spills allows everything.
type Spills struct {
	at map[spillKey]*allowance
}

type spillKey struct{ region, model string }

// allowance is a bucket of prompt tokens. It may be overdrawn by one request, so that a long one can go at all.
type allowance struct {
	tokens  float64
	rate    float64 // tokens/s that were last granted
	filled  time.Time
	until   time.Time // when the pause after a refusal ends
	refused int       // in a row
}

// NewSpills has spilled nothing yet.
func NewSpills() *Spills { return &Spills{at: map[spillKey]*allowance{}} }

// grants reports whether the budget of so many tokens/s has room.
func (s *Spills) grants(region, model string, rate float64, now time.Time) bool {
	if s == nil {
		return true
	}
	a := s.at[spillKey{region, model}]
	if a == nil {
		return rate > 0
	}
	a.fill(rate, now)
	return a.tokens > 0
}

// fill lets the bucket run full at a rate, up to one second's.
func (a *allowance) fill(rate float64, now time.Time) {
	a.tokens = min(rate, a.tokens+rate*max(0, now.Sub(a.filled)).Seconds())
	a.rate, a.filled = rate, now
}

// paused reports whether the peer has refused such requests lately.
func (s *Spills) paused(region, model string, now time.Time) bool {
	if s == nil {
		return false
	}
	a := s.at[spillKey{region, model}]
	return a != nil && now.Before(a.until)
}

// Take books a request that goes to a peer, of so many prompt tokens, out of a budget of rate tokens/s.
func (s *Spills) Take(region, model string, tokens int, rate float64, now time.Time) {
	if a := s.of(region, model, rate, now); a != nil {
		a.fill(rate, now)
		a.tokens = max(a.tokens-float64(tokens), -max(rate, float64(tokens))) // what had to go is not held against others for long
	}
}

// Refused books that a peer has no room by its own word, and leaves it alone for a while.
func (s *Spills) Refused(region, model string, now time.Time, rng *rand.Rand) {
	a := s.of(region, model, 0, now)
	if a == nil {
		return
	}
	pause := min(pauseLeast<<min(a.refused, 8), pauseMost)
	a.refused++
	a.until = now.Add(pause/2 + time.Duration(rng.Int64N(int64(pause))))
}

// Accepted books that a peer took a request.
func (s *Spills) Accepted(region, model string) {
	if a := s.at[spillKey{region, model}]; a != nil {
		a.refused, a.until = 0, time.Time{}
	}
}

// Retain forgets regions that are peers no longer.
func (s *Spills) Retain(peer func(region string) bool) {
	for k := range s.at {
		if !peer(k.region) {
			delete(s.at, k)
		}
	}
}

// of is the account of a pair, made when there is none: its bucket is full.
func (s *Spills) of(region, model string, rate float64, now time.Time) *allowance {
	k := spillKey{region, model}
	a := s.at[k]
	if a == nil && len(s.at) < maxAllowances {
		a = &allowance{tokens: rate, rate: rate, filled: now}
		s.at[k] = a
	}
	return a
}
