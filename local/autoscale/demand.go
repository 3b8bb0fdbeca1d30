package autoscale

import "time"

// A DemandMeter counts in steps of meterStep, and compares the last half of its span with the half before it.
const (
	meterStep  = 5 * time.Second
	meterSteps = 12
	halfSteps  = meterSteps / 2
)

// DemandMeter measures offered tokens per second over the last minute. The zero value is ready.
type DemandMeter struct {
	steps       [meterSteps]TokenDemand
	currentStep int64 // the step that is being filled
	since       time.Time
}

// TokenDemand is tokens, or tokens per second.
type TokenDemand struct{ Prefill, Decode float64 }

// AddRequest counts one request, whether or not it is served.
func (m *DemandMeter) AddRequest(d TokenDemand, now time.Time) {
	s := &m.steps[m.advanceTo(now)]
	s.Prefill += clampAmount(d.Prefill)
	s.Decode += clampAmount(d.Decode)
}

// advanceTo advances to the step of now and clears the steps in between. If the clock steps back, the present step is filled.
func (m *DemandMeter) advanceTo(now time.Time) int64 {
	step := now.UnixNano() / int64(meterStep)
	if m.since.IsZero() {
		m.since, m.currentStep = now, step
	}
	if step-m.currentStep >= meterSteps {
		m.steps, m.currentStep = [meterSteps]TokenDemand{}, step
	}
	for ; m.currentStep < step; m.currentStep++ {
		m.steps[(m.currentStep+1)%meterSteps] = TokenDemand{}
	}
	return m.currentStep % meterSteps
}

// MeasureRates returns the demand of the last half minute and its growth, in tokens/s and tokens/s per second.
func (m *DemandMeter) MeasureRates(now time.Time) (rate, trend TokenDemand) {
	m.advanceTo(now)
	into := now.Sub(time.Unix(0, m.currentStep*int64(meterStep))).Seconds()
	into = min(max(into, 0), meterStep.Seconds())
	span := float64(halfSteps-1)*meterStep.Seconds() + into
	lived := max(now.Sub(m.since).Seconds(), 0)
	late, early := m.sumSteps(0, halfSteps), m.sumSteps(halfSteps, meterSteps)
	rate = late.perSecondOver(max(min(span, lived), meterStep.Seconds()))
	const before = float64(meterSteps-halfSteps) * float64(meterStep) / float64(time.Second)
	if lived >= span+before { // a shorter past would be mostly noise
		old := early.perSecondOver(before)
		half := (span + before) / 2 // time between the middles of the two halves
		trend = TokenDemand{growthBeyondNoise(rate.Prefill, old.Prefill) / half, growthBeyondNoise(rate.Decode, old.Decode) / half}
	}
	return rate, trend
}

// growthNoise is the growth that is treated as noise, as a share of the earlier rate.
const growthNoise = 0.3

// growthBeyondNoise is the growth of a rate beyond noise, or its decline.
func growthBeyondNoise(rate, old float64) float64 {
	if rate <= old {
		return rate - old
	}
	return max(rate-old-growthNoise*old, 0)
}

// sumSteps adds up the steps from the one that is from steps back to the one before to.
func (m *DemandMeter) sumSteps(from, to int64) (d TokenDemand) {
	for i := from; i < to; i++ {
		s := &m.steps[((m.currentStep-i)%meterSteps+meterSteps)%meterSteps]
		d.Prefill += s.Prefill
		d.Decode += s.Decode
	}
	return d
}

func (d TokenDemand) perSecondOver(seconds float64) TokenDemand {
	return TokenDemand{d.Prefill / seconds, d.Decode / seconds}
}

// maxAmount caps any amount.
const maxAmount = 1e15

// clampAmount replaces NaN and negative numbers by 0 and caps large ones.
func clampAmount(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, maxAmount)
}
