package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Forecast is what a queue would say to a request now.
type Forecast struct {
	// Refusal that it would meet; Accepted when it would wait.
	Refusal Refusal
	// Shed is the probability with which it is refused all the same, because its class is the first to go.
	Shed float64
	// Wait is how long it would wait, if that is known: not before something has drained.
	Wait  time.Duration
	Known bool
}

// Foresee says what Push would answer, and changes nothing.
func (q *Queue[T]) Foresee(it *Item[T], now time.Time) (f Forecast) {
	x := *it
	x.tidy()
	l := &q.lines[x.Class]
	ln := l.peek(&x, q.cfg.MaxTenants)
	f.Wait, f.Known = q.waitOf(ln, x.Class, x.Work, now)
	f.Shed = q.shedding(x.Class, now)
	switch {
	case q.tenantFull(&x, ln):
		f.Refusal = TenantFull
	case f.Shed >= 1:
		f.Refusal = Shed
	case !x.Firm && q.late(&x, ln, now), x.Firm && q.hopeless(&x, ln, now) && (ln.bulkiest(&x) == nil || !now.Before(x.Deadline)):
		f.Refusal = Late
	case !q.classFits(&x, 0, 0) && q.greedier(&x, ln) == nil:
		f.Refusal = ClassFull
	case !q.fits(&x, 0, 0) && !q.outranks(&x) && q.greedier(&x, ln) == nil:
		f.Refusal = Full
	}
	return f
}

// peek is the lane that a request would wait in, or one like it.
func (l *line[T]) peek(it *Item[T], most int) *lane[T] {
	switch ln := l.lanes[it.Tenant]; {
	case ln != nil:
		return ln
	case len(l.lanes) >= most && l.longest == nil:
		return &l.others
	}
	return &lane[T]{tenant: it.Tenant, at: -1, weight: it.Weight}
}

// outranks says whether the item fits once every less urgent request was gone.
func (q *Queue[T]) outranks(it *Item[T]) bool {
	var n int
	var bytes int64
	for c := it.Class + 1; c < spec.NumClasses; c++ {
		n += q.lines[c].n
		bytes += q.lines[c].bytes
	}
	return q.fits(it, n, bytes)
}

// tenantFull says whether the item's tenant holds all it may.
func (q *Queue[T]) tenantFull(it *Item[T], ln *lane[T]) bool {
	n, b := q.cfg.tenantBound(it.Class)
	return len(ln.items) >= n || ln.bytes+it.Bytes > b
}

// shedding is the probability with which a request of class c is refused because the queue nears saturation.
func (q *Queue[T]) shedding(c spec.Class, now time.Time) float64 {
	if c != spec.Batch {
		return 0
	}
	return q.shedProbability(q.Saturation(now))
}

// late says whether the item would enter after its deadline.
func (q *Queue[T]) late(it *Item[T], ln *lane[T], now time.Time) bool {
	if it.Deadline.IsZero() {
		return false
	}
	wait, ok := q.soonest(ln, it.Class, it.Work, now)
	return !now.Before(it.Deadline) || ok && q.drain.sure() && wait > it.Deadline.Sub(now)
}
