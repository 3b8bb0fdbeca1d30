package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// counts are what became of a class's requests since the start.
type counts struct {
	passed, taken, removed, evicted uint64
	refused                         [numRefusals]uint64
}

// Snapshot is all that can be said of a Queue at one moment. It shares nothing with it.
type Snapshot struct {
	// Waiting requests and the bytes they hold, with their bounds.
	Waiting, MaxItems int
	Bytes, MaxBytes   int64
	// DrainRate is the measured rate in prefill tokens/s while something waited; 0 when nothing has.
	DrainRate float64
	// Saturation as Queue.Saturation; ShedProbability is what a batch request meets at it.
	Saturation, ShedProbability float64
	// Classes in order of urgency.
	Classes [spec.NumClasses]ClassSnapshot
}

// ClassSnapshot is one class of a Snapshot.
type ClassSnapshot struct {
	// Class it is.
	Class spec.Class
	// Waiting and Running requests, and the waiting ones' prefill tokens and bytes.
	Waiting, Running int
	Work, Bytes      int64
	// Weight now, raised by Oldest, the age of the oldest waiting request.
	Weight float64
	Oldest time.Duration
	// Wait is the prediction for a new request when tenants are not told apart; negative when unknown.
	Wait time.Duration
	// Passed entered without waiting, Taken after it; Removed left or were evicted while they waited.
	Passed, Taken, Removed, Evicted uint64
	// Refused counts by reason, in the order of the Refusals; Accepted is the first.
	Refused [numRefusals]uint64
	// Tenants that wait or run, the most waiting first, and how many there are in all.
	Tenants    []TenantSnapshot
	AllTenants int
}

// TenantSnapshot is one tenant of a ClassSnapshot.
type TenantSnapshot struct {
	// Tenant's name; "(others)" for those beyond the bound.
	Tenant string
	// Waiting and Running requests, and the waiting ones' prefill tokens and bytes.
	Waiting, Running int
	Work, Bytes      int64
	// Ahead is how many seconds of GPU time more it has had than the waiting tenant that has had the least.
	Ahead float64
	// NextDue is the time to its first request's due moment, negative when that has passed; 0 when nothing waits.
	NextDue time.Duration
}

// Snapshot describes the queue with at most tenants of each class.
func (q *Queue[T]) Snapshot(now time.Time, tenants int) Snapshot {
	s := Snapshot{
		Waiting: q.n, MaxItems: q.cfg.MaxItems, Bytes: q.bytes, MaxBytes: q.cfg.MaxBytes,
		DrainRate: q.drain.perSecond(now), Saturation: q.Saturation(now),
	}
	s.ShedProbability = q.shedProbability(s.Saturation)
	for c := range q.lines {
		s.Classes[c] = q.class(spec.Class(c), now, tenants)
	}
	return s
}

func (q *Queue[T]) class(c spec.Class, now time.Time, most int) ClassSnapshot {
	l := &q.lines[c]
	s := ClassSnapshot{
		Class: c, Waiting: l.n, Running: l.running, Work: l.work, Bytes: l.bytes, Weight: q.weight(c, now), Oldest: l.age(now),
		Passed: l.count.passed, Taken: l.count.taken, Removed: l.count.removed, Evicted: l.count.evicted, Refused: l.count.refused,
	}
	var ok bool
	if s.Wait, ok = q.Wait(c, now); !ok && l.n > 0 {
		s.Wait = -1
	}
	for _, ln := range l.lanes {
		s.Tenants = l.describe(s.Tenants, ln, now)
	}
	s.Tenants = l.describe(s.Tenants, &l.others, now)
	slices.SortFunc(s.Tenants, func(a, b TenantSnapshot) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Running, a.Running), cmp.Compare(a.Tenant, b.Tenant))
	})
	s.AllTenants = len(s.Tenants)
	s.Tenants = s.Tenants[:min(len(s.Tenants), max(most, 0))]
	return s
}

func (l *line[T]) describe(list []TenantSnapshot, ln *lane[T], now time.Time) []TenantSnapshot {
	if len(ln.items) == 0 && ln.running == 0 {
		return list
	}
	t := TenantSnapshot{Tenant: ln.tenant, Waiting: len(ln.items), Running: ln.running, Work: ln.work, Bytes: ln.bytes}
	if len(l.waiting) > 0 {
		t.Ahead = ln.counter - l.waiting[0].counter
	}
	if len(ln.items) > 0 && !ln.items[0].Due.IsZero() {
		t.NextDue = ln.items[0].Due.Sub(now)
	}
	return append(list, t)
}

// Oldest is how long the oldest request of class c has waited; 0 when none does.
func (q *Queue[T]) Oldest(c spec.Class, now time.Time) time.Duration {
	return q.lines[clamp(c)].age(now)
}
