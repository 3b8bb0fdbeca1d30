package health

import (
	"math/rand/v2"
	"time"
)

// Deep says when a worker has gone so long without a token that it should be asked for one: a health page can answer
// while the engine behind it is wedged, and an idle worker shows nothing else. The zero value is ready.
type Deep struct {
	since time.Time // of the last token, or of the last question
	part  float64   // of the interval that the next silence may last, 0.9 to 1.1
}

// Heard books a token, or any answer that was computed.
func (d *Deep) Heard(now time.Time) { d.since = now }

// Since is when it was last heard of or asked.
func (d *Deep) Since() time.Time { return d.since }

// Due says whether the worker is to be asked now, and books the question when it is. The interval is spread by a tenth to
// either side; one that is not positive asks nobody. A worker that was never seen before has been heard of now.
func (d *Deep) Due(every time.Duration, now time.Time, rng *rand.Rand) bool {
	if every <= 0 {
		d.part = 0
		return false
	}
	if d.part == 0 {
		d.since, d.part = now, 0.1+rng.Float64() // the first questions are spread over the whole interval
		return false
	}
	if now.Sub(d.since) < time.Duration(d.part*float64(every)) {
		return false
	}
	d.since, d.part = now, 0.9+0.2*rng.Float64()
	return true
}
