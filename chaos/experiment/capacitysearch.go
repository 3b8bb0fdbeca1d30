package experiment

import "math"

// estimateTries is the approximate number of runs of a search: bisections of the ratio between its bounds, or steps
// to both sides of a guess.
func (c *CapacitySearch) estimateTries(guessed bool) int {
	if guessed {
		return 3
	}
	return 1 + max(int(math.Ceil(math.Log2(math.Log(c.To/c.From)/math.Log1p(c.Within)))), 1)
}

// searchBracket is the state of a search: low meets the SLO and high does not, if they were tried.
type searchBracket struct {
	low, high           float64
	lowTried, highTried bool
	guess               []float64 // tried first, in this order
	stride              float64   // ratio of the step away from a wrong guess, squared each time
}

// recordTry records whether a value met the SLO.
func (b *searchBracket) recordTry(value float64, ok bool) {
	if ok {
		b.low, b.lowTried = max(b.low, value), true
	} else {
		b.high, b.highTried = min(b.high, value), true
	}
}

// nextValue is the value to try; false when the search is done.
func (b *searchBracket) nextValue(c *Case) (float64, bool) {
	for len(b.guess) > 0 {
		v := b.guess[0]
		if b.guess = b.guess[1:]; v > b.low && v < b.high {
			return v, true
		}
	}
	if !c.hasValuesBetween(b.low, b.high) {
		return 0, false
	}
	if b.stride > 1 && b.lowTried != b.highTried { // the guess is to one side of all
		b.stride *= b.stride
		v := b.low * b.stride
		if b.highTried {
			v = b.high / b.stride
		}
		if v = c.roundValue(v); v > b.low && v < b.high {
			return v, true
		}
	}
	return c.roundValue(math.Sqrt(b.low * b.high)), true
}

func (c *CapacitySearch) isWanted() bool { return c.To > 0 }
