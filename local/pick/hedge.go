package pick

import (
	"math"
	"time"
)

// Surprise remembers how long answers of one model took to begin, as multiples of what was predicted, in a histogram
// that forgets by halves. The zero value is ready. It has one writer and no lock.
type Surprise struct {
	total  int
	counts [surpriseBins]uint16
}

const (
	surpriseBins   = 48   // a quarter of an octave each
	surpriseLow    = -4   // the first bin ends at 2^-4 of the prediction, the last begins a little under 2^8
	surpriseMemory = 1024 // answers after which all counts are halved
	surpriseEnough = 32   // answers before which nothing is known
	unsurprised    = 3.0  // the multiple that is waited for until then
	longestHedge   = 10 * time.Minute
)

// Observe takes in that an answer began after took, when predicted was predicted, both in seconds. What cannot be is
// left out.
func (s *Surprise) Observe(took, predicted float64) {
	ratio := took / predicted
	if !(ratio > 0) || math.IsInf(ratio, 0) || !(predicted > 0) {
		return
	}
	b := int(math.Ceil(4 * (math.Log2(ratio) - surpriseLow)))
	s.counts[min(max(b, 0), surpriseBins-1)]++
	if s.total++; s.total >= surpriseMemory {
		s.halve()
	}
}

func (s *Surprise) halve() {
	s.total = 0
	for i := range s.counts {
		s.counts[i] /= 2
		s.total += int(s.counts[i])
	}
}

// Quantile is the multiple of its prediction that the given share of answers did not exceed.
func (s *Surprise) Quantile(share float64) float64 {
	if s.total < surpriseEnough {
		return unsurprised
	}
	left := share * float64(s.total)
	for i, n := range s.counts {
		if left -= float64(n); left <= 0 {
			return math.Exp2(surpriseLow + float64(i)/4)
		}
	}
	return math.Exp2(surpriseLow + float64(surpriseBins-1)/4)
}

// HedgeAfter is how long to wait for a first byte that was predicted in so many seconds before another worker is tried
// beside the first: what the given share of the model's answers do not exceed, floor at least.
func HedgeAfter(predicted float64, s *Surprise, share float64, floor time.Duration) time.Duration {
	seconds := predicted * s.Quantile(share)
	if !(seconds > floor.Seconds()) {
		return floor
	}
	return max(floor, time.Duration(min(seconds, longestHedge.Seconds())*float64(time.Second)))
}
