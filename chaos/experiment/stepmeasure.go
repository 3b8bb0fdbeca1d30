package experiment

import "math"

// UtilSeries is a region's utilization, once a second: its clients' demand over its capacity.
type UtilSeries struct {
	StepAt int       // the second in which demand rose
	Util   []float64 // 1 is capacity
}

// StepMeasure is the figures of one region's series.
type StepMeasure struct {
	OverSeconds   float64 // seconds above capacity
	Peak          float64 // the highest after the step
	Settled       float64 // mean of the last half after the step
	SD            float64 // standard deviation in that half
	Undershoot    float64 // minimum below Settled on the way
	SettleSeconds float64 // seconds until it stayed near Settled
}

// settledTolerance is the deviation from the mean within which a load counts as settled.
const settledTolerance = 0.05

// MeasureStep computes the figures of a series.
func (s *UtilSeries) MeasureStep() (m StepMeasure) {
	after := s.Util[min(s.StepAt, len(s.Util)):]
	rest := after[len(after)/2:]
	if len(rest) == 0 {
		return m
	}
	sum, squares := 0.0, 0.0
	for _, u := range rest {
		sum, squares = sum+u, squares+u*u
	}
	n := float64(len(rest))
	m.Settled = sum / n
	m.SD = math.Sqrt(math.Max(0, squares/n-m.Settled*m.Settled))
	for i, u := range after {
		m.Peak = math.Max(m.Peak, u)
		m.Undershoot = math.Max(m.Undershoot, m.Settled-u)
		if u > 1 {
			m.OverSeconds++
		}
		if math.Abs(u-m.Settled) > settledTolerance {
			m.SettleSeconds = float64(i + 1)
		}
	}
	return m
}

// SmoothOver is the series as moving averages, for values counted in requests.
func (s *UtilSeries) SmoothOver(seconds int) UtilSeries {
	out := UtilSeries{StepAt: s.StepAt, Util: make([]float64, len(s.Util))}
	for i := range s.Util {
		lo, hi := max(0, i-seconds/2), min(len(s.Util), i+seconds/2+1)
		for _, u := range s.Util[lo:hi] {
			out.Util[i] += u / float64(hi-lo)
		}
	}
	return out
}
