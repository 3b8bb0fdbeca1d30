package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Ahead is the work in prefill tokens that stands before a new request of class c when tenants are not told apart: all
// of its own class and of more urgent ones, and of the less urgent the part that their weights earn in the meantime.
func (q *Queue[T]) Ahead(c spec.Class) int64 {
	c = clamp(c)
	return q.before(c, float64(q.lines[c].work))
}

// before is what stands before a request behind own tokens of its own class.
func (q *Queue[T]) before(c spec.Class, own float64) int64 {
	sum := own
	for o := range q.lines {
		w := float64(q.lines[o].work)
		switch {
		case spec.Class(o) < c:
			sum += w
		case spec.Class(o) > c:
			sum += min(w, own*q.cfg.Weights[o]/q.cfg.Weights[c])
		}
	}
	return int64(sum)
}

// aheadOf is what stands before a request of one tenant: all that the tenant has waiting, and of each other tenant as
// much as is served to this one meanwhile by their weights, one request at least.
func (q *Queue[T]) aheadOf(ln *lane[T], c spec.Class, work int64) int64 {
	return q.before(c, q.lines[c].within(ln, work))
}

// within is the part of that which is of the tenant's own class.
func (l *line[T]) within(ln *lane[T], work int64) float64 {
	if l.n == 0 {
		return 0
	}
	own := float64(ln.work)
	others, weights := float64(len(l.waiting)), l.weights
	if ln.at >= 0 {
		others, weights = others-1, max(0, weights-ln.weight)
	}
	served := max(weights/positive(ln.weight, 1)*(own+float64(work)), others*float64(l.work)/float64(l.n))
	return own + min(float64(l.work)-own, served)
}

// Wait predicts how long a new request of class c would wait when tenants are not told apart, from the rate at which
// the queue has been draining. ok is false when nothing has drained yet.
func (q *Queue[T]) Wait(c spec.Class, now time.Time) (wait time.Duration, ok bool) {
	return q.drain.time(q.Ahead(c), now)
}

func (q *Queue[T]) waitOf(ln *lane[T], c spec.Class, work int64, now time.Time) (time.Duration, bool) {
	return q.drain.time(q.aheadOf(ln, c, work), now)
}

// soonest is how long a new request would wait if it meets its due moment: who has missed his stands behind it.
func (q *Queue[T]) soonest(ln *lane[T], c spec.Class, work int64, now time.Time) (time.Duration, bool) {
	ahead := q.aheadOf(ln, c, work) - q.lines[c].missed
	return q.drain.time(max(0, ahead), now)
}

// Bounds of what a refused caller is told, and what it is told while the drain rate is not known.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 120 * time.Second
	anyRetryAfter = 10 * time.Second
)

// RetryAfter is when a refused request of a tenant might find room: the time to drain half of what stands before it,
// between 1 s and 120 s.
func (q *Queue[T]) RetryAfter(tenant string, c spec.Class, now time.Time) time.Duration {
	c = clamp(c)
	l := &q.lines[c]
	ln := l.lanes[tenant]
	if ln == nil {
		ln = &l.others
	}
	wait, ok := q.waitOf(ln, c, 1, now)
	if !ok {
		return anyRetryAfter
	}
	return max(minRetryAfter, min((wait/2).Round(time.Second), maxRetryAfter))
}
