package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// recentArrivalSpan is how long after its last request a tenant still counts as present, because it may send another
// at any time.
const recentArrivalSpan = 10 * time.Second

// tenantArrival is a tenant and the time of its last request.
type tenantArrival struct {
	tenant string
	at     time.Time
}

// recentArrivals are the arrivals of the two tenants of a class that arrived last, the latest first. Two suffice to know
// for every tenant when another one last arrived.
type recentArrivals [2]tenantArrival

// recordArrival records a request that entered or waits. Refused ones do not count: room that is kept free is of no
// use to them.
func (a *recentArrivals) recordArrival(tenant string, now time.Time) {
	if a[0].tenant != tenant {
		a[1] = a[0]
	}
	a[0] = tenantArrival{tenant, now}
}

// lastOther returns when a tenant other than the given one last arrived.
func (a *recentArrivals) lastOther(tenant string) time.Time {
	if a[0].tenant == tenant {
		return a[1].at
	}
	return a[0].at
}

// lastOtherArrival returns when a tenant other than the given one last arrived in class c or a more urgent one.
func (s *classSet[T]) lastOtherArrival(tenant string, c spec.Class) (last time.Time) {
	for i := range s[:c+1] {
		if at := s[i].arrivals.lastOther(tenant); at.After(last) {
			last = at
		}
	}
	return last
}
