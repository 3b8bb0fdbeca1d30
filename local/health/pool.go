package health

import (
	"slices"
	"time"
)

// minOutlierPool is the smallest pool in which a worker can be an outlier.
const minOutlierPool = 3

// MayEject reports whether one more worker of a pool may be taken out for k, given how many do not take requests
// already. All that is learned from clients' requests is bounded, of any kind: no client may take a whole pool out. A
// worker whose own health probe also fails (FailsProbes) need not be kept for the pool.
func (c Config) MayEject(k FailureKind, out, total int) bool {
	if !k.isDoubt() {
		return true
	}
	share := float64(out+1) <= c.withDefaults().MaxEjected*float64(total)
	if k.isConnectionOrEngineFailure() && out == 0 {
		return true // a pool of one: while the worker's health probe passes, it is used in a panic
	}
	return share && out+1 < total
}

// FindOutlier finds the worst worker of a pool that is far from the rest: by error rate, or by latency relative to
// the pool's median. at is -1 when there is none. MayEject decides whether it may be taken out. Workers whose errors
// went to one tenant only are skipped and become suspected.
func (c Config) FindOutlier(pool []*Breaker, now time.Time) (at int, k FailureKind) {
	c = c.withDefaults()
	if at := findOutlierBy(pool, now, (*Breaker).errorRate, func(median float64) float64 { return max(c.ErrorRate, 3*median) }, (*Breaker).isCorroborated); at >= 0 {
		return at, ErrorRateOutlier
	}
	if at := findOutlierBy(pool, now, (*Breaker).meanSlowness, func(median float64) float64 { return c.SlowFactor * median }, acceptAlways); at >= 0 {
		return at, LatencyOutlier
	}
	return -1, 0
}

func acceptAlways(*Breaker, float64, time.Time) bool { return true }

// findOutlierBy returns the closed worker with the greatest value above the limit derived from the pool's median,
// among those for which counts is true.
func findOutlierBy(pool []*Breaker, now time.Time, value func(*Breaker, time.Time) (float64, bool), limit func(median float64) float64, counts func(b *Breaker, limit float64, now time.Time) bool) int {
	all := make([]float64, 0, len(pool))
	for _, b := range pool {
		if v, ok := value(b, now); ok && b.state == Closed {
			all = append(all, v)
		}
	}
	if len(all) < minOutlierPool {
		return -1
	}
	slices.Sort(all)
	most := limit(all[(len(all)-1)/2])
	worst, greatest := -1, most
	for i, b := range pool {
		if v, ok := value(b, now); ok && b.state == Closed && v > most && counts(b, most, now) && v > greatest {
			worst, greatest = i, v
		}
	}
	return worst
}

// IsPanicking reports whether so few workers of a pool take requests that doubts are ignored.
func (c Config) IsPanicking(taking, total int) bool {
	return total > 0 && float64(taking) < c.withDefaults().Panic*float64(total)
}

// UsableInPanic reports whether the worker may be used in a panic: it is out for what requests or a deep probe have
// shown, and its last health probe passed.
func (b *Breaker) UsableInPanic() bool {
	return b.state == Open && b.openCount > 0 && b.failedProbes == 0 && (b.reason.isDoubt() || b.reason == DeepProbeFailed)
}

// FailsProbes reports whether the worker's last health probe failed.
func (b *Breaker) FailsProbes() bool { return b.failedProbes > 0 }
