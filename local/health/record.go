package health

import (
	"math"
	"time"
)

// record is what recent answers were like; it forgets over recordWindow.
type record struct {
	at            time.Time
	answers, bad  float64
	timed, slower float64 // answers whose latency was told, and the sum of it
}

const recordWindow = 30.0 // seconds

func (r *record) forget(now time.Time) {
	if dt := now.Sub(r.at).Seconds(); dt > 0 {
		k := math.Exp(-dt / recordWindow)
		r.answers, r.bad, r.timed, r.slower = r.answers*k, r.bad*k, r.timed*k, r.slower*k
		r.at = now
	}
}

func (r *record) add(ok bool, now time.Time) {
	r.forget(now)
	r.answers++
	if !ok {
		r.bad++
	}
}

// Took books how long a first token took, as a multiple of what a worker of its kind should have taken. Workers of
// different GPUs can be compared by that.
func (b *Breaker) Took(slowness float64, now time.Time) {
	if !(slowness > 0) || slowness > 1e9 {
		return
	}
	b.record.forget(now)
	b.record.timed++
	b.record.slower += slowness
}

// errorRate and latency are the recent means; ok is false when too little was seen.
func (b *Breaker) errorRate(now time.Time) (rate float64, ok bool) {
	b.see(now)
	b.record.forget(now)
	if b.record.answers < b.cfg.Samples {
		return 0, false
	}
	return b.record.bad / b.record.answers, true
}

func (b *Breaker) latency(now time.Time) (slowness float64, ok bool) {
	b.see(now)
	b.record.forget(now)
	if b.record.timed < b.cfg.Samples {
		return 0, false
	}
	return b.record.slower / b.record.timed, true
}
