package health

import (
	"math"
	"time"
)

// answerRecord summarizes recent answers, decaying over answerWindow.
type answerRecord struct {
	updatedAt                 time.Time
	answers, failed           float64
	plain                     float64 // part of failed: plain error answers
	plainOf                   tenants
	timedAnswers, slownessSum float64 // answers with a known latency, and the sum of their slowness
}

const answerWindow = 30.0 // seconds

func (r *answerRecord) decayTo(now time.Time) {
	if dt := now.Sub(r.updatedAt).Seconds(); dt > 0 {
		k := math.Exp(-dt / answerWindow)
		r.answers, r.failed, r.plain, r.timedAnswers, r.slownessSum = r.answers*k, r.failed*k, r.plain*k, r.timedAnswers*k, r.slownessSum*k
		r.updatedAt = now
	}
}

func (r *answerRecord) addAnswer(ok bool, now time.Time) {
	r.decayTo(now)
	r.answers++
	if !ok {
		r.failed++
	}
}

// recordRefusal records a plain error answer, or a refusal for load, to a tenant.
func (r *answerRecord) recordRefusal(tenant string, now time.Time) {
	r.addAnswer(false, now)
	r.plain++
	r.plainOf.addTenant(tenant, now)
}

// clearPlainErrors removes plain error answers from the record.
func (r *answerRecord) clearPlainErrors() {
	r.answers, r.failed = r.answers-r.plain, r.failed-r.plain
	r.plain, r.plainOf = 0, tenants{}
}

// RecordSlowness records the time of a first token as a multiple of its expected time on this hardware, so that
// workers with different GPUs are comparable.
func (b *Breaker) RecordSlowness(slowness float64, now time.Time) {
	if !(slowness > 0) || slowness > 1e9 {
		return
	}
	b.answers.decayTo(now)
	b.answers.timedAnswers++
	b.answers.slownessSum += slowness
}

// errorRate and meanSlowness are the recent means; ok is false with too few samples.
func (b *Breaker) errorRate(now time.Time) (rate float64, ok bool) {
	b.adjustClock(now)
	b.answers.decayTo(now)
	if b.answers.answers < b.cfg.Samples {
		return 0, false
	}
	return b.answers.failed / b.answers.answers, true
}

func (b *Breaker) meanSlowness(now time.Time) (slowness float64, ok bool) {
	b.adjustClock(now)
	b.answers.decayTo(now)
	if b.answers.timedAnswers < b.cfg.Samples {
		return 0, false
	}
	return b.answers.slownessSum / b.answers.timedAnswers, true
}
