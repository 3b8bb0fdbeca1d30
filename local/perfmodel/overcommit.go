package perfmodel

import (
	"math"
	"time"
)

// MaxOvercommit is the maximum factor by which a worker's KV cache may be overcommitted.
const MaxOvercommit = 2.0

const (
	overcommitMinPart          = 0.5              // lower bound, as a part of the limit
	overcommitPreemptionFactor = 0.9              // multiplies the factor at a preemption
	overcommitOOMFactor        = 0.75             // multiplies the factor when the engine runs out of memory
	overcommitHoldoff          = 5 * time.Second  // one wave of preemptions counts once
	overcommitRecovery         = 10 * time.Minute // from the floor to the limit
)

// Overcommit is the factor of one worker's KV cache that may be reserved. Predictions of output length are uncertain,
// and where they were too low the engine preempts sequences or crashes. Each such event reduces the factor, and it
// recovers slowly.
type Overcommit struct {
	limit     float64
	factor    float64
	factorAt  time.Time // time at which factor was current
	reducedAt time.Time // when it was last reduced
}

// NewOvercommit returns an Overcommit that starts at limit, its upper bound.
func NewOvercommit(limit float64) Overcommit {
	if !(limit > 0) {
		limit = 1
	}
	limit = min(limit, MaxOvercommit)
	return Overcommit{limit: limit, factor: limit}
}

// SetLimit replaces the upper bound and keeps what was learned below it.
func (o *Overcommit) SetLimit(limit float64, now time.Time) {
	fresh := NewOvercommit(limit)
	if fresh.limit == o.limit {
		return
	}
	o.factor = o.Factor(now) / o.limit * fresh.limit
	o.limit, o.factorAt = fresh.limit, now
}

// RecordPreemption reduces the factor after the engine preempted sequences for lack of KV cache.
func (o *Overcommit) RecordPreemption(now time.Time) { o.reduceFactor(overcommitPreemptionFactor, now) }

// RecordOutOfMemory reduces the factor after the engine ran out of memory.
func (o *Overcommit) RecordOutOfMemory(now time.Time) { o.reduceFactor(overcommitOOMFactor, now) }

func (o *Overcommit) reduceFactor(to float64, now time.Time) {
	if !o.reducedAt.IsZero() && now.Sub(o.reducedAt).Abs() < overcommitHoldoff {
		return
	}
	o.factor = math.Max(o.Factor(now)*to, overcommitMinPart*o.limit)
	o.factorAt, o.reducedAt = now, now
}

// Factor returns the current factor of the KV cache that may be reserved.
func (o *Overcommit) Factor(now time.Time) float64 {
	if o.factorAt.IsZero() || o.factor >= o.limit {
		return o.factor
	}
	back := max(0, now.Sub(o.factorAt)).Seconds() / overcommitRecovery.Seconds()
	return math.Min(o.limit, o.factor+back*(1-overcommitMinPart)*o.limit)
}
