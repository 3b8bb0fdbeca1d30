package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// classCounts counts the fates of a class's requests since the start.
type classCounts struct {
	entered, placed, removed, evicted uint64
	refused                           [numRefusals]uint64
}

// Snapshot is a copy of a Queue's state at one moment. It shares no memory with the queue.
type Snapshot struct {
	// Waiting requests and the bytes they hold, with their bounds.
	Waiting, MaxItems int
	Bytes, MaxBytes   int64
	// DrainRate is the measured rate in prefill tokens/s while the queue was not empty; 0 before anything left.
	DrainRate float64
	// Saturation is Queue.Saturation; ShedProbability is that of a batch request at this saturation.
	Saturation, ShedProbability float64
	// Classes in order of urgency.
	Classes [spec.NumClasses]ClassSnapshot
}

// ClassSnapshot is one class of a Snapshot.
type ClassSnapshot struct {
	// Class described.
	Class spec.Class
	// Waiting and Running requests, and the waiting ones' prefill tokens and bytes.
	Waiting, Running int
	Work, Bytes      int64
	// Weight now, raised by Oldest, the age of the oldest waiting request.
	Weight float64
	Oldest time.Duration
	// Wait is the predicted wait of a new request, over all tenants; negative when unknown.
	Wait time.Duration
	// EnteredDirectly counts requests that entered without waiting, PlacedAfterWait those that entered after it;
	// Removed counts those that left or were evicted while they waited, Evicted the evicted ones.
	EnteredDirectly, PlacedAfterWait, Removed, Evicted uint64
	// Refused counts requests by Refusal; index 0, Accepted, counts those that wait or waited.
	Refused [numRefusals]uint64
	// Tenants that wait or run, the one with the most waiting requests first; AllTenants is their number before the
	// list is cut.
	Tenants    []TenantSnapshot
	AllTenants int
}

// TenantSnapshot is one tenant of a ClassSnapshot.
type TenantSnapshot struct {
	// Tenant is its name, "(others)" for the tenants beyond the bound.
	Tenant string
	// Waiting and Running requests, and the waiting ones' prefill tokens and bytes.
	Waiting, Running int
	Work, Bytes      int64
	// AheadSeconds is its counter minus the lowest counter of the waiting tenants, in seconds of GPU time by weight.
	AheadSeconds float64
	// NextDue is the time to its first request's due time, negative when that has passed; 0 when nothing waits.
	NextDue time.Duration
}

// Snapshot copies the queue's state, with at most the given number of tenants per class.
func (q *Queue[T]) Snapshot(now time.Time, tenants int) Snapshot {
	s := Snapshot{
		Waiting: q.itemCount, MaxItems: q.cfg.MaxItems, Bytes: q.bytes, MaxBytes: q.cfg.MaxBytes,
		DrainRate: q.drainMeter.ratePerSecond(now), Saturation: q.Saturation(now),
	}
	s.ShedProbability = q.cfg.shedProbability(s.Saturation)
	for c := range q.classes {
		s.Classes[c] = q.snapshotClass(spec.Class(c), now, tenants)
	}
	return s
}

func (q *Queue[T]) snapshotClass(c spec.Class, now time.Time, most int) ClassSnapshot {
	l := &q.classes[c]
	s := ClassSnapshot{
		Class: c, Waiting: l.itemCount, Running: l.running, Work: l.work, Bytes: l.bytes, Weight: q.classes.agedWeight(&q.cfg, c, now), Oldest: l.oldestAge(now),
		EnteredDirectly: l.counts.entered, PlacedAfterWait: l.counts.placed, Removed: l.counts.removed, Evicted: l.counts.evicted, Refused: l.counts.refused,
	}
	var ok bool
	if s.Wait, ok = q.PredictWait(c, now); !ok && l.itemCount > 0 {
		s.Wait = -1
	}
	for _, ln := range l.tenants {
		s.Tenants = l.appendTenantSnapshot(s.Tenants, ln, now)
	}
	s.Tenants = l.appendTenantSnapshot(s.Tenants, &l.overflowTenants, now)
	slices.SortFunc(s.Tenants, func(a, b TenantSnapshot) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Running, a.Running), cmp.Compare(a.Tenant, b.Tenant))
	})
	s.AllTenants = len(s.Tenants)
	s.Tenants = s.Tenants[:min(len(s.Tenants), max(most, 0))]
	return s
}

func (l *classQueue[T]) appendTenantSnapshot(list []TenantSnapshot, ln *tenantQueue[T], now time.Time) []TenantSnapshot {
	if len(ln.items) == 0 && ln.running == 0 {
		return list
	}
	t := TenantSnapshot{Tenant: ln.tenant, Waiting: len(ln.items), Running: ln.running, Work: ln.work, Bytes: ln.bytes}
	if len(l.waitingTenants) > 0 {
		t.AheadSeconds = ln.virtualCounter - l.waitingTenants[0].virtualCounter
	}
	if len(ln.items) > 0 && !ln.items[0].DueAt.IsZero() {
		t.NextDue = ln.items[0].DueAt.Sub(now)
	}
	return append(list, t)
}

// OldestWait is how long the oldest request of class c has waited; 0 when none waits.
func (q *Queue[T]) OldestWait(c spec.Class, now time.Time) time.Duration {
	return q.classes[clampClass(c)].oldestAge(now)
}

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
