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
	s := q.classes.sumShares(tenant, c, now)
	v := ShareVerdict{YieldsToUrgent: s.urgentBusy, OverShare: s.isOverShare(q.classes.lastOtherArrival(tenant, c), now)}
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

// isOverShare returns ShareVerdict.OverShare. lastOther is when another tenant last arrived.
func (s *shareSums) isOverShare(lastOther, now time.Time) bool {
	others := s.others
	if others == 0 {
		if lastOther.IsZero() || now.Sub(lastOther) >= recentArrivalSpan {
			return false
		}
		others = 1
	}
	n := float64(1 + others)
	return s.ownBusy*n > s.busySeconds && (s.waiting == 0 || s.ownWork*n > s.work)
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
