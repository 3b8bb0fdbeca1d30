package scale

import "time"

// A Meter counts in steps of so long, and compares the last half of its span with the half before it.
const (
	meterStep  = 5 * time.Second
	meterSteps = 12
	halfSteps  = meterSteps / 2
)

// Meter measures offered tokens per second over the last minute. The zero Meter is ready.
type Meter struct {
	steps [meterSteps]Demand
	at    int64 // the step that is being filled
	since time.Time
}

// Demand is tokens, or tokens per second.
type Demand struct{ Prefill, Decode float64 }

// Offer counts one request, whatever becomes of it.
func (m *Meter) Offer(d Demand, now time.Time) {
	s := &m.steps[m.turn(now)]
	s.Prefill += clean(d.Prefill)
	s.Decode += clean(d.Decode)
}

// turn goes on to the step of now and empties those in between. A clock that steps back fills the present step.
func (m *Meter) turn(now time.Time) int64 {
	step := now.UnixNano() / int64(meterStep)
	if m.since.IsZero() {
		m.since, m.at = now, step
	}
	if step-m.at >= meterSteps {
		m.steps, m.at = [meterSteps]Demand{}, step
	}
	for ; m.at < step; m.at++ {
		m.steps[(m.at+1)%meterSteps] = Demand{}
	}
	return m.at % meterSteps
}

// Rates are the demand of the last half minute and how fast it grows, in tokens/s and tokens/s each second.
func (m *Meter) Rates(now time.Time) (rate, trend Demand) {
	m.turn(now)
	into := now.Sub(time.Unix(0, m.at*int64(meterStep))).Seconds()
	into = min(max(into, 0), meterStep.Seconds())
	span := float64(halfSteps-1)*meterStep.Seconds() + into
	lived := max(now.Sub(m.since).Seconds(), 0)
	late, early := m.sum(0, halfSteps), m.sum(halfSteps, meterSteps)
	rate = late.over(max(min(span, lived), meterStep.Seconds()))
	const before = float64(meterSteps-halfSteps) * float64(meterStep) / float64(time.Second)
	if lived >= span+before { // a short past would be mostly noise
		old := early.over(before)
		half := (span + before) / 2 // between the middles of the two
		trend = Demand{growth(rate.Prefill, old.Prefill) / half, growth(rate.Decode, old.Decode) / half}
	}
	return rate, trend
}

// noise is the growth that says nothing, as a part of what was there before.
const noise = 0.3

// growth is what a rate has gained beyond noise, or lost.
func growth(rate, old float64) float64 {
	if rate <= old {
		return rate - old
	}
	return max(rate-old-noise*old, 0)
}

// sum adds up the steps from the one so many back.
func (m *Meter) sum(from, to int64) (d Demand) {
	for i := from; i < to; i++ {
		s := &m.steps[((m.at-i)%meterSteps+meterSteps)%meterSteps]
		d.Prefill += s.Prefill
		d.Decode += s.Decode
	}
	return d
}

func (d Demand) over(seconds float64) Demand { return Demand{d.Prefill / seconds, d.Decode / seconds} }

// most caps what is believed of any amount.
const most = 1e15

// clean makes a number one that can be reckoned with.
func clean(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, most)
}
