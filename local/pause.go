package local

import "time"

// stoodStill is how late this process may look at its workers before it was stopped (SIGSTOP, a frozen machine, a laptop's
// sleep) and not merely busy. It is far below any stall.
const stoodStill = 2 * time.Second

// overslept says that something with a time limit ended so long after its limit that it was this process that stood
// still: nobody read what came meanwhile.
func overslept(began, now time.Time, limit time.Duration) bool {
	return now.Sub(began) > limit+stoodStill
}

// forgive makes good for a time in which this process stood still, which would make every worker look stalled and every
// model idle at once. It is called before anything is judged by the clock.
func (f *floor) forgive(now time.Time) {
	gap := now.Sub(f.walked)
	if f.walked.IsZero() || gap < stoodStill {
		return
	}
	f.walked = now
	f.stood += gap
	for _, w := range f.workers {
		w.forgive(gap, now)
	}
	for w := range f.leaving {
		w.forgive(gap, now)
	}
}

func (w *worker) forgive(gap time.Duration, now time.Time) {
	w.breaker.Forgive(now)
	for _, p := range w.places {
		if !p.used.IsZero() {
			p.used = p.used.Add(gap)
		}
	}
}
