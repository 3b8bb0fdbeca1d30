package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Forecast is the answer that Push would give to a request now.
type Forecast struct {
	// Refusal is the reason it would be refused for, Accepted when it would wait.
	Refusal Refusal
	// ShedProbability is the additional probability of being shed for load.
	ShedProbability float64
	// Wait is the predicted wait, valid if WaitKnown: a prediction needs a drain rate.
	Wait      time.Duration
	WaitKnown bool
}

// ForecastPush returns what Push would return, and changes nothing.
func (q *Queue[T]) ForecastPush(it *Item[T], now time.Time) (f Forecast) {
	x := *it
	x.clampFields()
	l := &q.classes[x.Class]
	ln := l.peekTenantQueue(&x, q.cfg.MaxTenants)
	f.Wait, f.WaitKnown = q.predictTenantWait(ln, x.Class, x.Work, now)
	f.ShedProbability = q.classShedProbability(x.Class, now)
	switch {
	case ln.isFullFor(&x, &q.cfg):
		f.Refusal = TenantFull
	case f.ShedProbability >= 1:
		f.Refusal = ShedForLoad
	case !x.ShedWhenLate && q.missesDeadline(&x, ln, now), x.ShedWhenLate && q.cannotMeetDeadline(&x, ln, now) && (ln.largestSheddable(&x) == nil || !now.Before(x.Deadline)):
		f.Refusal = DeadlineUnmeetable
	case !q.fitsClass(&x, 0, 0) && q.findGreedierItem(&x, ln) == nil:
		f.Refusal = ClassFull
	case !q.fitsQueue(&x, 0, 0) && !q.fitsAboveLessUrgent(&x) && q.findGreedierItem(&x, ln) == nil:
		f.Refusal = QueueFull
	}
	return f
}

// fitsAboveLessUrgent reports whether the item fits after every less urgent request is removed.
func (q *Queue[T]) fitsAboveLessUrgent(it *Item[T]) bool {
	var n int
	var bytes int64
	for c := it.Class + 1; c < spec.NumClasses; c++ {
		n += q.classes[c].itemCount
		bytes += q.classes[c].bytes
	}
	return q.fitsQueue(it, n, bytes)
}

// classShedProbability is the probability that a request of class c is refused because the queue nears saturation.
func (q *Queue[T]) classShedProbability(c spec.Class, now time.Time) float64 {
	if c != spec.Batch {
		return 0
	}
	return q.cfg.shedProbability(q.Saturation(now))
}

// missesDeadline reports whether the item would enter after its deadline.
func (q *Queue[T]) missesDeadline(it *Item[T], ln *tenantQueue[T], now time.Time) bool {
	if it.Deadline.IsZero() {
		return false
	}
	wait, ok := q.predictOnTimeWait(ln, it.Class, it.Work, now)
	return !now.Before(it.Deadline) || ok && q.drainMeter.isReliable() && wait > it.Deadline.Sub(now)
}
