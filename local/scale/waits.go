package scale

import (
	"slices"
	"time"
)

const (
	keptWaits = 512
	waitsFor  = time.Minute
)

// Waits holds the last queue waits of a model. The zero Waits is ready.
type Waits struct {
	kept [keptWaits]wait
	n    int
}

type wait struct {
	at      time.Time
	seconds float64
}

// Add takes in how long a request has waited.
func (w *Waits) Add(d time.Duration, now time.Time) {
	w.kept[w.n%keptWaits] = wait{now, max(d.Seconds(), 0)}
	w.n++
}

// Quantiles are the median and the 99th percentile of the last minute's waits in seconds, of the last 512 at most; zero
// when there were none.
func (w *Waits) Quantiles(now time.Time) (p50, p99 float64) {
	var of []float64
	for i := range min(w.n, keptWaits) {
		if now.Sub(w.kept[i].at) < waitsFor {
			of = append(of, w.kept[i].seconds)
		}
	}
	if len(of) == 0 {
		return 0, 0
	}
	slices.Sort(of)
	return of[len(of)/2], of[min(len(of)*99/100, len(of)-1)]
}
