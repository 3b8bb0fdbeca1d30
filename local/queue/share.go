package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// ShareVerdict is how a tenant's use compares with its fair share: all that the placement of its next request depends on.
type ShareVerdict struct {
	// Running compares the requests that it runs in its class with all that run in that class and in more urgent ones.
	// Each tenant of a class counts as one. Less urgent tenants do not reduce the share.
	Running ShareState
	// OverShare is set while the tenant exceeds its equal part of the running GPU time and of the waiting work, and
	// other tenants wait, run or have arrived recently. Only tenants of its own class and of more urgent ones count: no
	// request leaves room for a less urgent one.
	//
	// Both conditions are needed. A tenant that runs much while it was not held back is not over its share if others
	// have less work waiting than their part, and a tenant that waits much but runs less than its part is due for
	// service. So a tenant that only wants its share is never over it, and one that is held back is within its share
	// again before it has less than that.
	OverShare bool
	// YieldsToUrgent is set while requests of the class must leave room for more urgent ones that wait, run or arrived
	// recently, so that those do not find engines full of work that could have waited.
	YieldsToUrgent bool
}

// ShareState compares what a tenant runs with its equal part.
type ShareState uint8

// States of a tenant.
const (
	ShareAlone ShareState = iota // no other tenant is present
	ShareUnder                   // it runs at most its equal part
	ShareOver                    // it runs more: free room is for the others
)

// shareSums are the sums over classes that a ShareVerdict compares.
type shareSums struct {
	active, lessUrgent       int // tenants in the class and more urgent ones; in less urgent ones
	others                   int // most other tenants in one class: a tenant in two classes counts once
	running, ownRunning      int
	busySeconds, ownBusy     float64
	work, ownWork            float64
	waiting                  int
	urgentBusy, ownIsPresent bool
}

// JudgeShare judges a tenant that sends in class c.
func (q *Queue[T]) JudgeShare(tenant string, c spec.Class, now time.Time) ShareVerdict {
	c = clampClass(c)
	s := q.sumShares(tenant, c, now)
	v := ShareVerdict{YieldsToUrgent: s.urgentBusy, OverShare: q.isOverShare(&s, tenant, c, now)}
	active := s.active
	if !s.ownIsPresent {
		active++ // it is about to become active
	}
	switch {
	case active+s.lessUrgent < 2:
		v.Running = ShareAlone
	case s.ownRunning*active > s.running:
		v.Running = ShareOver
	default:
		v.Running = ShareUnder
	}
	return v
}

// sumShares adds up what a tenant and all tenants use.
func (q *Queue[T]) sumShares(tenant string, c spec.Class, now time.Time) (s shareSums) {
	for i := range q.classes {
		l := &q.classes[i]
		n := len(l.tenants) - l.restingCount
		if i > int(c) {
			s.lessUrgent += n
			continue
		}
		s.active += n
		s.running += l.running
		s.busySeconds += l.busySeconds
		s.work += float64(l.work)
		s.waiting += l.itemCount
		if i < int(c) {
			at := l.lastArrivals[0].arrivedAt
			s.urgentBusy = s.urgentBusy || l.itemCount > 0 || l.running > 0 || !at.IsZero() && now.Sub(at) < recentArrivalSpan
		}
		if own := l.tenants[tenant]; own != nil {
			if i == int(c) {
				s.ownRunning, s.ownIsPresent = own.running, !own.isResting
			}
			if !own.isResting {
				s.ownBusy += own.busySeconds
				s.ownWork += float64(own.work)
				n--
			}
		}
		s.others = max(s.others, n)
	}
	return s
}

// isOverShare returns ShareVerdict.OverShare.
func (q *Queue[T]) isOverShare(s *shareSums, tenant string, c spec.Class, now time.Time) bool {
	others := s.others
	if others == 0 {
		at := q.lastOtherArrival(tenant, c)
		if at.IsZero() || now.Sub(at) >= recentArrivalSpan {
			return false
		}
		others = 1
	}
	n := float64(1 + others)
	return s.ownBusy*n > s.busySeconds && (s.waiting == 0 || s.ownWork*n > s.work)
}

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

// OthersWaiting reports whether tenants other than this one wait.
func (q *Queue[T]) OthersWaiting(tenant string, c spec.Class) bool {
	c = clampClass(c)
	for i := range q.classes {
		n := len(q.classes[i].waitingTenants)
		if spec.Class(i) == c {
			if own := q.classes[i].tenants[tenant]; own != nil && own.heapPos >= 0 {
				n--
			}
		}
		if n > 0 {
			return true
		}
	}
	return false
}
