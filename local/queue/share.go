package queue

import "github.com/spillway-lb/spillway/internal/spec"

// ShareState compares what a tenant runs with its equal part.
type ShareState uint8

// States of a tenant.
const (
	ShareAlone ShareState = iota // no other tenant is present
	ShareUnder                   // it runs at most its equal part
	ShareOver                    // it runs more: free room is for the others
)

// TenantShareState compares the number of requests that a tenant runs in its class with all that run in that class
// and in more urgent ones. Each tenant of a class counts as one. Less urgent tenants do not reduce the share.
func (q *Queue[T]) TenantShareState(tenant string, c spec.Class) ShareState {
	c = clampClass(c)
	own := q.classes[c].tenants[tenant]
	active, less, all := 0, 0, 0
	for i := range q.classes {
		l := &q.classes[i]
		n := len(l.tenants) - l.restingCount
		if i > int(c) {
			less += n
			continue
		}
		active += n
		all += l.running
	}
	if own == nil || own.isResting {
		active++ // it is about to become active
	}
	switch {
	case active+less < 2:
		return ShareAlone
	case own != nil && own.running*active > all:
		return ShareOver
	}
	return ShareUnder
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
