package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// recentArrivalSpan is how long after its last request a tenant still counts as present, because it may send another
// at any time.
const recentArrivalSpan = 10 * time.Second

// lastArrival is a tenant and the time of its last request.
type lastArrival struct {
	tenant    string
	arrivedAt time.Time
}

// recordArrival records a request that entered or waits. Refused ones do not count: room that is kept free is of no
// use to them. The two latest tenants suffice to know for every tenant when another one last arrived.
func (l *classQueue[T]) recordArrival(tenant string, now time.Time) {
	last := &l.lastArrivals[0]
	if last.tenant != tenant {
		l.lastArrivals[1] = *last
	}
	*last = lastArrival{tenant, now}
}

// lastOtherArrival is when a tenant other than the given one last arrived in class c or a more urgent one.
func (q *Queue[T]) lastOtherArrival(tenant string, c spec.Class) (last time.Time) {
	for i := range q.classes[:c+1] {
		a := &q.classes[i].lastArrivals
		at := a[0].arrivedAt
		if a[0].tenant == tenant {
			at = a[1].arrivedAt
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// YieldsToUrgent reports whether requests of class c must leave room for more urgent ones that wait, run or arrived
// recently, so that those do not find engines full of work that could have waited.
func (q *Queue[T]) YieldsToUrgent(c spec.Class, now time.Time) bool {
	for i := range q.classes[:clampClass(c)] {
		l := &q.classes[i]
		if at := l.lastArrivals[0].arrivedAt; l.itemCount > 0 || l.running > 0 || !at.IsZero() && now.Sub(at) < recentArrivalSpan {
			return true
		}
	}
	return false
}

// IsOverShare reports whether a tenant that sends in class c exceeds its equal part of the running GPU time and of
// the waiting work, while other tenants wait, run or have arrived recently. Only tenants of its own class and of more
// urgent ones count: no request leaves room for a less urgent one.
//
// Both conditions are needed. A tenant that runs much while it was not held back is not over its share if others have
// less work waiting than their part, and a tenant that waits much but runs less than its part is due for service. So
// a tenant that only wants its share is never over it, and one that is held back is within its share again before it
// has less than that.
func (q *Queue[T]) IsOverShare(tenant string, c spec.Class, now time.Time) bool {
	c = clampClass(c)
	var own, all, ownWork, work float64
	others, waiting := 0, 0
	for i := range q.classes[:c+1] {
		l := &q.classes[i]
		all += l.busySeconds
		work += float64(l.work)
		waiting += l.itemCount
		n := len(l.tenants) - l.restingCount
		if ln := l.tenants[tenant]; ln != nil && !ln.isResting {
			own += ln.busySeconds
			ownWork += float64(ln.work)
			n--
		}
		others = max(others, n) // a tenant in two classes counts once
	}
	if others == 0 {
		at := q.lastOtherArrival(tenant, c)
		if at.IsZero() || now.Sub(at) >= recentArrivalSpan {
			return false
		}
		others = 1
	}
	n := float64(1 + others)
	return own*n > all && (waiting == 0 || ownWork*n > work)
}
