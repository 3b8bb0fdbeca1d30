package health

import (
	"slices"
	"time"
)

// minPool is the least number of workers of which one can be an outlier.
const minPool = 3

// MayEject says whether one more of a pool may be taken out for k, given how many do not take requests already. What is
// learned from clients' requests is bounded, whatever its kind: no client may take a whole pool out. A worker whose own
// health probe fails too (Failing) need not be kept for the sake of the pool.
func (c Config) MayEject(k Kind, out, total int) bool {
	if !k.doubt() {
		return true
	}
	share := float64(out+1) <= c.withDefaults().MaxEjected*float64(total)
	if k.hard() && out == 0 {
		return true // a pool of one: while its worker's health probe passes, the panic uses it all the same
	}
	return share && out+1 < total
}

// Outlier finds the worst worker of a pool that is far from the rest: by error rate, or by latency against the pool's
// median. at is -1 when there is none. Whether it may be taken out is MayEject's to say.
func (c Config) Outlier(pool []*Breaker, now time.Time) (at int, k Kind) {
	c = c.withDefaults()
	if at := furthest(pool, now, (*Breaker).errorRate, func(median float64) float64 { return max(c.ErrorRate, 3*median) }); at >= 0 {
		return at, Erring
	}
	if at := furthest(pool, now, (*Breaker).latency, func(median float64) float64 { return c.SlowFactor * median }); at >= 0 {
		return at, Slow
	}
	return -1, 0
}

// furthest is the closed worker with the greatest value over the limit that the median of the pool sets.
func furthest(pool []*Breaker, now time.Time, value func(*Breaker, time.Time) (float64, bool), limit func(median float64) float64) int {
	all := make([]float64, 0, len(pool))
	worst, most := -1, 0.0
	for i, b := range pool {
		v, ok := value(b, now)
		if !ok || b.state != Closed {
			continue
		}
		all = append(all, v)
		if worst < 0 || v > most {
			worst, most = i, v
		}
	}
	if len(all) < minPool {
		return -1
	}
	slices.Sort(all)
	if most <= limit(all[(len(all)-1)/2]) {
		return -1
	}
	return worst
}

// Panics says whether so few of a pool take requests that doubts no longer count.
func (c Config) Panics(taking, total int) bool {
	return total > 0 && float64(taking) < c.withDefaults().Panic*float64(total)
}

// Relents says whether the worker may be used in a panic: it is out for what requests or a deep probe have shown, and its
// last health probe passed.
func (b *Breaker) Relents() bool {
	return b.state == Open && b.opened > 0 && b.probes == 0 && (b.reason.doubt() || b.reason == DeepProbe)
}

// Failing says that the worker's last health probe failed.
func (b *Breaker) Failing() bool { return b.probes > 0 }
