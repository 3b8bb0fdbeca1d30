package pick

import (
	"math"
	"time"
)

// MaxOvercommit is the greatest factor of a worker's KV cache that may ever be promised.
const MaxOvercommit = 2.0

const (
	overcommitFloor = 0.5              // of the limit: it falls no lower
	overcommitDrop  = 0.9              // what is left of it after a preemption
	overcommitOOM   = 0.75             // and after running out of memory
	overcommitRest  = 5 * time.Second  // one wave of preemptions counts once
	overcommitBack  = 10 * time.Minute // from the floor to the limit
)

// Overcommit is how much of one worker's KV cache may be promised. Predictions of output are never certain, and where
// they were too low the engine throws sequences out or dies: each time that shows, less is promised, and trust comes
// back slowly.
type Overcommit struct {
	limit  float64
	factor float64
	at     time.Time // when factor was true
	fell   time.Time // when it last fell
}

// NewOvercommit starts at limit, the factor that is never exceeded.
func NewOvercommit(limit float64) Overcommit {
	if !(limit > 0) {
		limit = 1
	}
	limit = min(limit, MaxOvercommit)
	return Overcommit{limit: limit, factor: limit}
}

// Limit replaces the factor that is never exceeded and keeps what was learned below it.
func (o *Overcommit) Limit(limit float64, now time.Time) {
	fresh := NewOvercommit(limit)
	if fresh.limit == o.limit {
		return
	}
	o.factor = o.Factor(now) / o.limit * fresh.limit
	o.limit, o.at = fresh.limit, now
}

// Preempted notes that the engine threw sequences out for lack of KV cache.
func (o *Overcommit) Preempted(now time.Time) { o.fall(overcommitDrop, now) }

// OutOfMemory notes that the engine ran out of memory.
func (o *Overcommit) OutOfMemory(now time.Time) { o.fall(overcommitOOM, now) }

func (o *Overcommit) fall(to float64, now time.Time) {
	if !o.fell.IsZero() && now.Sub(o.fell).Abs() < overcommitRest {
		return
	}
	o.factor = math.Max(o.Factor(now)*to, overcommitFloor*o.limit)
	o.at, o.fell = now, now
}

// Factor is how much of the KV cache may be promised now.
func (o *Overcommit) Factor(now time.Time) float64 {
	if o.at.IsZero() || o.factor >= o.limit {
		return o.factor
	}
	back := max(0, now.Sub(o.at)).Seconds() / overcommitBack.Seconds()
	return math.Min(o.limit, o.factor+back*(1-overcommitFloor)*o.limit)
}
