package local

import "time"

// unseen says that all answers of a worker wait for clients who read slowly, so that nobody sees what it emits. Once one
// of them reads again, the worker's silence counts from then.
func (w *worker) unseen(now time.Time) bool {
	was := w.muffled
	w.muffled = false
	for at := range w.attempts {
		if at.loose {
			continue
		}
		if !at.waits.Load() {
			w.muffled = false
			break
		}
		w.muffled = true
	}
	if was && !w.muffled {
		w.breaker.Forgive(now)
	}
	return w.muffled
}
