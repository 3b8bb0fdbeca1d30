package autoscale

import (
	"slices"
	"time"
)

const (
	maxKeptWaits = 512
	waitWindow   = time.Minute
)

// QueueWaits keeps the last queue waits of a model. The zero value is ready.
type QueueWaits struct {
	kept [maxKeptWaits]queueWait
	n    int
}

type queueWait struct {
	at      time.Time
	seconds float64
}

// AddWait records the wait of one request.
func (w *QueueWaits) AddWait(d time.Duration, now time.Time) {
	w.kept[w.n%maxKeptWaits] = queueWait{now, max(d.Seconds(), 0)}
	w.n++
}

// QuantileSeconds returns the median and the 99th percentile of the last minute's waits in seconds, of the last 512 at most;
// zero when there were none.
func (w *QueueWaits) QuantileSeconds(now time.Time) (p50, p99 float64) {
	var of []float64
	for i := range min(w.n, maxKeptWaits) {
		if now.Sub(w.kept[i].at) < waitWindow {
			of = append(of, w.kept[i].seconds)
		}
	}
	if len(of) == 0 {
		return 0, 0
	}
	slices.Sort(of)
	return of[len(of)/2], of[min(len(of)*99/100, len(of)-1)]
}
