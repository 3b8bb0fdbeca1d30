package pick

import (
	"math"
	"math/bits"
	"time"
)

// Latency remembers how long one worker's first tokens have taken: a peak EWMA, which jumps to every slow answer and
// forgets it by the clock, and the recent median at each octave of sequences. A nil Latency knows nothing.
type Latency struct {
	peak   float64 // seconds
	at     time.Time
	seen   bool
	median [latencyOctaves]float64 // seconds; 0 where nothing was seen
}

const (
	latencyOctaves = 10
	latencyHalf    = 10 * time.Second // after which a peak counts half
	medianStep     = 0.08             // a median moves by this part of itself towards each observation
)

// Observe takes in one first token: seconds after dispatch, with so many sequences on the worker then. What cannot be
// is left out.
func (l *Latency) Observe(seqs int64, seconds float64, now time.Time) {
	if !(seconds > 0) || seconds > maxSeconds {
		return
	}
	if old := l.Peak(0, now); !l.seen || seconds > old {
		l.peak = seconds
	} else {
		// The part that the clock has not forgotten yet gives way to what was seen.
		l.peak = old + 0.1*(seconds-old)
	}
	l.at, l.seen = now, true
	m := &l.median[octave(seqs)]
	switch {
	case *m == 0:
		*m = seconds
	case seconds > *m:
		*m = min(*m*(1+medianStep), seconds)
	default:
		*m = max(*m/(1+medianStep), seconds)
	}
}

// Peak is the peak EWMA in seconds, melted down towards idle, what an idle worker would take.
func (l *Latency) Peak(idle float64, now time.Time) float64 {
	if l == nil || !l.seen {
		return idle
	}
	age := max(0, now.Sub(l.at))
	if age == 0 {
		return max(l.peak, idle)
	}
	return idle + max(0, l.peak-idle)*math.Exp2(-float64(age)/float64(latencyHalf))
}

// Near is the recent median at so many sequences, or at the nearest octave that was seen; ok is false when none was.
func (l *Latency) Near(seqs int64) (seconds float64, ok bool) {
	if l == nil || !l.seen {
		return 0, false
	}
	o := octave(seqs)
	for d := range latencyOctaves {
		if o-d >= 0 && l.median[o-d] > 0 {
			return l.median[o-d], true
		}
		if o+d < latencyOctaves && l.median[o+d] > 0 {
			return l.median[o+d], true
		}
	}
	return 0, false
}

func octave(seqs int64) int {
	return min(bits.Len64(uint64(max(seqs, 0))), latencyOctaves-1)
}
