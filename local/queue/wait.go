package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// WorkAhead is the work in prefill tokens ahead of a new request of class c, over all tenants: all of its own class
// and of more urgent ones, and of less urgent classes what their weights earn in the meantime.
func (q *Queue[T]) WorkAhead(c spec.Class) int64 {
	c = clampClass(c)
	return q.classes.workAheadIn(&q.cfg, c, float64(q.classes[c].work))
}

// workAheadInClass is the part of workAheadOf in the tenant's own class.
func (l *classQueue[T]) workAheadInClass(ln *tenantQueue[T], work int64) float64 {
	if l.itemCount == 0 {
		return 0
	}
	own := float64(ln.work)
	others, weights := float64(len(l.waitingTenants)), l.waitingWeight
	if ln.heapPos >= 0 {
		others, weights = others-1, max(0, weights-ln.weight)
	}
	served := max(weights/positiveOr(ln.weight, 1)*(own+float64(work)), others*float64(l.work)/float64(l.itemCount))
	return own + min(float64(l.work)-own, served)
}

// PredictWait predicts how long a new request of class c waits, over all tenants, from the measured drain rate. ok is
// false when nothing has drained yet.
func (q *Queue[T]) PredictWait(c spec.Class, now time.Time) (wait time.Duration, ok bool) {
	return q.drainMeter.timeToDrain(q.WorkAhead(c), now)
}

func (q *Queue[T]) predictTenantWait(ln *tenantQueue[T], c spec.Class, work int64, now time.Time) (time.Duration, bool) {
	return q.drainMeter.timeToDrain(q.classes.workAheadOf(&q.cfg, ln, c, work), now)
}

// predictOnTimeWait predicts the wait of a new request that can meet its due time: requests that missed theirs are
// behind it.
func (q *Queue[T]) predictOnTimeWait(ln *tenantQueue[T], c spec.Class, work int64, now time.Time) (time.Duration, bool) {
	ahead := q.classes.workAheadOf(&q.cfg, ln, c, work) - q.classes[c].missedWork
	return q.drainMeter.timeToDrain(max(0, ahead), now)
}

// Bounds of RetryAfter, and its value while the drain rate is unknown.
const (
	minRetryAfter     = time.Second
	maxRetryAfter     = 120 * time.Second
	defaultRetryAfter = 10 * time.Second
)

// RetryAfter is when a refused request of a tenant might find room: half the time to drain the work ahead of it,
// between 1 s and 120 s.
func (q *Queue[T]) RetryAfter(tenant string, c spec.Class, now time.Time) time.Duration {
	c = clampClass(c)
	l := &q.classes[c]
	ln := l.tenants[tenant]
	if ln == nil {
		ln = &l.overflowTenants
	}
	wait, ok := q.predictTenantWait(ln, c, 1, now)
	if !ok {
		return defaultRetryAfter
	}
	return max(minRetryAfter, min((wait/2).Round(time.Second), maxRetryAfter))
}
