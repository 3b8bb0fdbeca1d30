package step

import "math"

// Series is a region's utilisation, once a second: what its clients ask of it over what it can do.
type Series struct {
	At   int       // the second in which demand rose
	Util []float64 // 1 is capacity
}

// Measure is what the table says of one region's series.
type Measure struct {
	Over    float64 // seconds above capacity
	Peak    float64 // the highest after the step
	Settled float64 // mean of the last half after the step
	SD      float64 // standard deviation in that half
	Dip     float64 // how far it fell below Settled on the way
	Settle  float64 // seconds until it stayed near Settled
}

// near is how far from its mean a load may be and count as settled.
const near = 0.05

// Measure reads a series.
func (s *Series) Measure() (m Measure) {
	after := s.Util[min(s.At, len(s.Util)):]
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
		m.Dip = math.Max(m.Dip, m.Settled-u)
		if u > 1 {
			m.Over++
		}
		if math.Abs(u-m.Settled) > near {
			m.Settle = float64(i + 1)
		}
	}
	return m
}

// Smooth is the series as means over the seconds around each, for what is counted in requests.
func (s *Series) Smooth(seconds int) Series {
	out := Series{At: s.At, Util: make([]float64, len(s.Util))}
	for i := range s.Util {
		lo, hi := max(0, i-seconds/2), min(len(s.Util), i+seconds/2+1)
		for _, u := range s.Util[lo:hi] {
			out.Util[i] += u / float64(hi-lo)
		}
	}
	return out
}
