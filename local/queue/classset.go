package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// classSet are the classes of one queue: the order in which they are served, and sums over them.
type classSet[T any] [spec.NumClasses]classQueue[T]

// dueClasses lists the classes that are not empty, the one to be served next first.
func (s *classSet[T]) dueClasses(cfg *Config, now time.Time, into *[spec.NumClasses]spec.Class) []spec.Class {
	var keys [spec.NumClasses]float64
	n := 0
	for c := range s {
		if s[c].itemCount == 0 {
			continue
		}
		key := s.classKey(cfg, spec.Class(c), now)
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
func (s *classSet[T]) classKey(cfg *Config, c spec.Class, now time.Time) float64 {
	l := &s[c]
	return l.virtualTime + l.waitingTenants[0].items[0].Cost/s.agedWeight(cfg, c, now)
}

// agedWeight is the class's weight, raised by the age of its oldest request up to the class's target. Beyond the
// target the weight stays, so a class that misses it gains no more.
func (s *classSet[T]) agedWeight(cfg *Config, c spec.Class, now time.Time) float64 {
	age := min(s[c].oldestAge(now), cfg.Targets[c])
	return cfg.Weights[c] * (1 + age.Seconds()/cfg.Aging.Seconds())
}

// liftClass raises the virtual time of a class that was empty to the lowest of the classes that were not, so that
// idle time earns no credit.
func (s *classSet[T]) liftClass(c spec.Class) {
	least, found := 0.0, false
	for o := range s {
		if o != int(c) && s[o].itemCount > 0 && (!found || s[o].virtualTime < least) {
			least, found = s[o].virtualTime, true
		}
	}
	if !found {
		for o := range s {
			s[o].virtualTime = 0
		}
		return
	}
	s[c].virtualTime = max(s[c].virtualTime, least)
}

// workAheadIn is the work ahead of a request that has own tokens of its class ahead of it.
func (s *classSet[T]) workAheadIn(cfg *Config, c spec.Class, own float64) int64 {
	sum := own
	for o := range s {
		w := float64(s[o].work)
		switch {
		case spec.Class(o) < c:
			sum += w
		case spec.Class(o) > c:
			sum += min(w, own*cfg.Weights[o]/cfg.Weights[c])
		}
	}
	return int64(sum)
}

// workAheadOf is the work ahead of a new request of one tenant: all that the tenant has waiting, and of each other
// tenant what its weight earns meanwhile, at least one request.
func (s *classSet[T]) workAheadOf(cfg *Config, ln *tenantQueue[T], c spec.Class, work int64) int64 {
	return s.workAheadIn(cfg, c, s[c].workAheadInClass(ln, work))
}

// newestLeastUrgent returns the newest waiting item of the least urgent class; nil when none waits.
func (s *classSet[T]) newestLeastUrgent() *Item[T] {
	for c := spec.NumClasses - 1; c >= 0; c-- {
		if v := s[c].newest; v != nil {
			return v
		}
	}
	return nil
}

// sumShares adds up what a tenant and all tenants use.
func (s *classSet[T]) sumShares(tenant string, c spec.Class, now time.Time) (sum shareSums) {
	for i := range s {
		l := &s[i]
		n := len(l.tenants) - l.resting.count
		if i > int(c) {
			sum.lessUrgent += n
			continue
		}
		sum.active += n
		sum.running += l.running
		sum.busySeconds += l.busySeconds
		sum.work += float64(l.work)
		sum.waiting += l.itemCount
		if i < int(c) {
			at := l.arrivals[0].at
			sum.urgentBusy = sum.urgentBusy || l.itemCount > 0 || l.running > 0 || !at.IsZero() && now.Sub(at) < recentArrivalSpan
		}
		if own := l.tenants[tenant]; own != nil {
			if i == int(c) {
				sum.ownRunning, sum.ownIsPresent = own.running, !own.isResting
			}
			if !own.isResting {
				sum.ownBusy += own.busySeconds
				sum.ownWork += float64(own.work)
				n--
			}
		}
		sum.others = max(sum.others, n)
	}
	return sum
}

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
