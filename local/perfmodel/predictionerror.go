package perfmodel

import (
	"math"
	"time"
)

// PredictionError is a histogram of the measured time to first token of one model's answers as a multiple of its
// prediction. Counts are halved regularly, so that old answers lose weight. The zero value is ready. It has one writer
// and no lock.
type PredictionError struct {
	total  int
	counts [errorBins]uint16
}

const (
	errorBins          = 48   // a quarter of an octave each
	errorLowOctave     = -4   // the first bin ends at 2^-4 of the prediction, the last begins a little under 2^8
	errorMemory        = 1024 // answers after which all counts are halved
	errorMinSamples    = 32   // below so many answers the default applies
	defaultErrorFactor = 3.0  // used as the quantile until then
	maxHedgeDelay      = 10 * time.Minute
)

// ObserveTTFT adds an answer that began after took seconds with a prediction of predicted seconds. Invalid values are
// ignored.
func (s *PredictionError) ObserveTTFT(took, predicted float64) {
	ratio := took / predicted
	if !(ratio > 0) || math.IsInf(ratio, 0) || !(predicted > 0) {
		return
	}
	b := int(math.Ceil(4 * (math.Log2(ratio) - errorLowOctave)))
	s.counts[min(max(b, 0), errorBins-1)]++
	if s.total++; s.total >= errorMemory {
		s.halveCounts()
	}
}

func (s *PredictionError) halveCounts() {
	s.total = 0
	for i := range s.counts {
		s.counts[i] /= 2
		s.total += int(s.counts[i])
	}
}

// Quantile returns the multiple of the prediction that the given share of answers did not exceed.
func (s *PredictionError) Quantile(share float64) float64 {
	if s.total < errorMinSamples {
		return defaultErrorFactor
	}
	left := share * float64(s.total)
	for i, n := range s.counts {
		if left -= float64(n); left <= 0 {
			return math.Exp2(errorLowOctave + float64(i)/4)
		}
	}
	return math.Exp2(errorLowOctave + float64(errorBins-1)/4)
}

// HedgeDelay returns how long to wait for a first byte predicted in so many seconds before a second attempt is sent to
// another worker. It is the time that the given share of the model's answers does not exceed, at least floor.
func HedgeDelay(predicted float64, s *PredictionError, share float64, floor time.Duration) time.Duration {
	seconds := predicted * s.Quantile(share)
	if !(seconds > floor.Seconds()) {
		return floor
	}
	return max(floor, time.Duration(min(seconds, maxHedgeDelay.Seconds())*float64(time.Second)))
}
