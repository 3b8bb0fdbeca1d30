package perfmodel

import (
	"math"
	"math/bits"
	"time"
)

// FirstTokenLatency tracks one worker's times to first token: a peak EWMA, which rises at once to a slow answer and
// decays with time, and a recent median for each octave of sequences. A nil FirstTokenLatency has no data.
type FirstTokenLatency struct {
	peakEWMA   float64 // seconds
	observedAt time.Time
	hasSample  bool
	medians    [latencyOctaves]float64 // seconds; 0 where nothing was observed
}

const (
	latencyOctaves  = 10
	latencyHalfLife = 10 * time.Second // after which a peak counts half
	medianStep      = 0.08             // a median moves by this part of itself per observation
)

// ObserveFirstToken adds one first token: seconds after dispatch, with so many sequences on the worker then. Invalid
// values are ignored.
func (l *FirstTokenLatency) ObserveFirstToken(seqs int64, seconds float64, now time.Time) {
	if !(seconds > 0) || seconds > MaxPredictedSeconds {
		return
	}
	if old := l.PeakSeconds(0, now); !l.hasSample || seconds > old {
		l.peakEWMA = seconds
	} else {
		// The decayed old peak is averaged with the new value.
		l.peakEWMA = old + 0.1*(seconds-old)
	}
	l.observedAt, l.hasSample = now, true
	m := &l.medians[seqsOctaveOf(seqs)]
	switch {
	case *m == 0:
		*m = seconds
	case seconds > *m:
		*m = min(*m*(1+medianStep), seconds)
	default:
		*m = max(*m/(1+medianStep), seconds)
	}
}

// PeakSeconds returns the peak EWMA in seconds, decayed toward idle, the time on an idle worker.
func (l *FirstTokenLatency) PeakSeconds(idle float64, now time.Time) float64 {
	if l == nil || !l.hasSample {
		return idle
	}
	age := max(0, now.Sub(l.observedAt))
	if age == 0 {
		return max(l.peakEWMA, idle)
	}
	return idle + max(0, l.peakEWMA-idle)*math.Exp2(-float64(age)/float64(latencyHalfLife))
}

// MedianNear returns the recent median at so many sequences, or at the nearest octave with data; ok is false when there
// is none.
func (l *FirstTokenLatency) MedianNear(seqs int64) (seconds float64, ok bool) {
	if l == nil || !l.hasSample {
		return 0, false
	}
	o := seqsOctaveOf(seqs)
	for d := range latencyOctaves {
		if o-d >= 0 && l.medians[o-d] > 0 {
			return l.medians[o-d], true
		}
		if o+d < latencyOctaves && l.medians[o+d] > 0 {
			return l.medians[o+d], true
		}
	}
	return 0, false
}

func seqsOctaveOf(seqs int64) int {
	return min(bits.Len64(uint64(max(seqs, 0))), latencyOctaves-1)
}
