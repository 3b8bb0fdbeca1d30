package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
)

// SpillBudgets holds what this gateway may still spill to each peer region, by model, and which peers have refused spills
// lately. It has one writer at a time. A nil SpillBudgets allows everything.
type SpillBudgets struct {
	buckets map[spillKey]*spillBucket
}

type spillKey struct{ region, model string }

// spillBucket is a token bucket of prompt tokens. One request may overdraw it, so that a long one can be sent at all.
type spillBucket struct {
	tokens      float64
	rate        float64 // refill rate, in tokens/s
	filledAt    time.Time
	pausedUntil time.Time // end of the pause after a refusal
	refusals    int       // in a row
}

// NewSpillBudgets returns full budgets.
func NewSpillBudgets() *SpillBudgets { return &SpillBudgets{buckets: map[spillKey]*spillBucket{}} }

// hasBudget reports whether the budget of a peer and model, refilled at rate tokens/s, is not used up.
func (s *SpillBudgets) hasBudget(region, model string, rate float64, now time.Time) bool {
	if s == nil {
		return true
	}
	a := s.buckets[spillKey{region, model}]
	if a == nil {
		return rate > 0
	}
	a.refillTo(rate, now)
	return a.tokens > 0
}

// peekBudget returns what hasBudget would return, without refilling.
func (s *SpillBudgets) peekBudget(region, model string, rate float64, now time.Time) bool {
	if s == nil {
		return true
	}
	a := s.buckets[spillKey{region, model}]
	if a == nil {
		return rate > 0
	}
	filled := *a
	filled.refillTo(rate, now)
	return filled.tokens > 0
}

// refillTo refills the bucket at a rate, up to the tokens of one second.
func (a *spillBucket) refillTo(rate float64, now time.Time) {
	a.tokens = min(rate, a.tokens+rate*max(0, now.Sub(a.filledAt)).Seconds())
	a.rate, a.filledAt = rate, now
}

// isPaused reports whether spills to the peer pause after a refusal.
func (s *SpillBudgets) isPaused(region, model string, now time.Time) bool {
	if s == nil {
		return false
	}
	a := s.buckets[spillKey{region, model}]
	return a != nil && now.Before(a.pausedUntil)
}

// TakeTokens takes the prompt tokens of a spilled request from a budget of rate tokens/s.
func (s *SpillBudgets) TakeTokens(region, model string, tokens int, rate float64, now time.Time) {
	if a := s.bucketFor(region, model, rate, now); a != nil {
		a.refillTo(rate, now)
		a.tokens = max(a.tokens-float64(tokens), -max(rate, float64(tokens))) // the debt is bounded, so that a spill without an alternative does not block others for long
	}
}

// RecordRefusal records that a peer refused a spill, and pauses spills to it.
func (s *SpillBudgets) RecordRefusal(region, model string, now time.Time, rng *rand.Rand) {
	a := s.bucketFor(region, model, 0, now)
	if a == nil {
		return
	}
	a.refusals++
	pause := backoff.DelayAfter(minRefusalPause, maxRefusalPause, a.refusals)
	a.pausedUntil = now.Add(pause/2 + time.Duration(rng.Int64N(int64(pause))))
}

// RecordAcceptance records that a peer took a spill, and ends the pause.
func (s *SpillBudgets) RecordAcceptance(region, model string) {
	if a := s.buckets[spillKey{region, model}]; a != nil {
		a.refusals, a.pausedUntil = 0, time.Time{}
	}
}

// RetainPeers removes the budgets of regions that are no longer peers.
func (s *SpillBudgets) RetainPeers(peer func(region string) bool) {
	for k := range s.buckets {
		if !peer(k.region) {
			delete(s.buckets, k)
		}
	}
}

// bucketFor returns the bucket of a pair. A new one is full. Nil: there are too many.
func (s *SpillBudgets) bucketFor(region, model string, rate float64, now time.Time) *spillBucket {
	k := spillKey{region, model}
	a := s.buckets[k]
	if a == nil && len(s.buckets) < maxSpillBuckets {
		a = &spillBucket{tokens: rate, rate: rate, filledAt: now}
		s.buckets[k] = a
	}
	return a
}
