package resume

import "time"

// repays is how many resumptions a second are made good for.
const repays = 10.0

// Allowance lets the streams of one great loss be resumed when the retry budget does not reach: at most as many as are
// open, which is made good again at 10 a second. A stream that is resumed takes no more room than before, and is resumed
// once; but a place that dies again and again must not have all its streams prefilled again each time. The zero value is
// ready.
type Allowance struct {
	spent float64
	at    time.Time
}

// Take takes one, while open streams are open.
func (a *Allowance) Take(now time.Time, open int) bool {
	if !a.at.IsZero() && now.After(a.at) {
		a.spent = max(a.spent-repays*now.Sub(a.at).Seconds(), 0)
	}
	if a.at.IsZero() || now.After(a.at) {
		a.at = now
	}
	if a.spent+1 > float64(open) {
		return false
	}
	a.spent++
	return true
}
