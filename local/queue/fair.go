package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// liftCounter raises the counter of a tenant that had nothing waiting to the lowest of the waiting tenants, or to
// that of the tenant that left last if none waits.
func (l *classQueue[T]) liftCounter(ln *tenantQueue[T]) {
	if len(l.waitingTenants) == 0 {
		ln.virtualCounter = max(ln.virtualCounter, l.lastLeftCounter)
		l.fairShareClock = ln.virtualCounter
		return
	}
	// The clock stays behind the lowest counter while the same tenants wait. It overtakes it when new tenants keep
	// entering at the lowest counter, and then delays them.
	ln.virtualCounter = max(ln.virtualCounter, l.waitingTenants[0].virtualCounter, l.fairShareClock-2*l.maxRecentCost)
}

// chargeCost adds a cost to a tenant's counter and to the class's fair-share clock.
func (l *classQueue[T]) chargeCost(ln *tenantQueue[T], cost float64) {
	ln.virtualCounter = max(0, ln.virtualCounter+cost/ln.weight)
	if len(l.waitingTenants) > 0 {
		l.fairShareClock += cost / max(l.waitingWeight, minTenantWeight)
	}
	if ln.heapPos >= 0 {
		l.waitingTenants.fixAt(ln.heapPos)
	}
}

// dueClasses lists the classes that are not empty, the one to be served next first.
func (q *Queue[T]) dueClasses(now time.Time, into *[spec.NumClasses]spec.Class) []spec.Class {
	var keys [spec.NumClasses]float64
	n := 0
	for c := range q.classes {
		if q.classes[c].itemCount == 0 {
			continue
		}
		key := q.classKey(spec.Class(c), now)
		i := n
		for i > 0 && keys[i-1] > key {
			into[i], keys[i] = into[i-1], keys[i-1]
			i--
		}
		into[i], keys[i] = spec.Class(c), key
		n++
	}
	return into[:n]
}

// classKey is a class's virtual time after its next request is served: virtual time + cost / aged weight. A class
// that got less than its share comes first.
func (q *Queue[T]) classKey(c spec.Class, now time.Time) float64 {
	l := &q.classes[c]
	return l.virtualTime + l.waitingTenants[0].items[0].Cost/q.agedWeight(c, now)
}

// agedWeight is the class's weight, raised by the age of its oldest request up to the class's target. Beyond the
// target the weight stays, so a class that misses it gains no more.
func (q *Queue[T]) agedWeight(c spec.Class, now time.Time) float64 {
	age := min(q.classes[c].oldestAge(now), q.cfg.Targets[c])
	return q.cfg.Weights[c] * (1 + age.Seconds()/q.cfg.Aging.Seconds())
}

// oldestAge is the age of the oldest waiting request.
func (l *classQueue[T]) oldestAge(now time.Time) time.Duration {
	if l.oldest == nil {
		return 0
	}
	return max(0, now.Sub(l.oldest.enqueuedAt))
}

// liftClass raises the virtual time of a class that was empty to the lowest of the classes that were not, so that
// idle time earns no credit.
func (q *Queue[T]) liftClass(c spec.Class) {
	least, found := 0.0, false
	for o := range q.classes {
		if o != int(c) && q.classes[o].itemCount > 0 && (!found || q.classes[o].virtualTime < least) {
			least, found = q.classes[o].virtualTime, true
		}
	}
	if !found {
		for o := range q.classes {
			q.classes[o].virtualTime = 0
		}
		return
	}
	q.classes[c].virtualTime = max(q.classes[c].virtualTime, least)
}
