package queue

import "time"

// Requests that are useless once late are chosen so that as many as possible are in time. For one server that is the
// rule of Moore and Hodgson: go through the requests by due time, and whenever one would be late, drop the longest so
// far. Here a sheddable request that would enter too late, at the rate at which its class drains, replaces the
// largest waiting sheddable request of its tenant if that one is larger. Other tenants' turns are not affected.

// admitSheddable reports whether a sheddable item may wait. It evicts a larger one if that is needed.
func (q *Queue[T]) admitSheddable(it *Item[T], ln *tenantQueue[T], now time.Time, evict func(*Item[T])) bool {
	if !it.ShedWhenLate || !q.cannotMeetDeadline(it, ln, now) {
		return true
	}
	v := ln.largestSheddable(it)
	if v == nil || !now.Before(it.Deadline) {
		return false
	}
	q.evictItem(v, now, evict)
	return true
}

// cannotMeetDeadline reports whether an item would enter after its deadline, behind the items ahead of it in its
// class and at the class's own drain rate.
func (q *Queue[T]) cannotMeetDeadline(it *Item[T], ln *tenantQueue[T], now time.Time) bool {
	l := &q.classes[it.Class]
	if it.Deadline.IsZero() {
		return false
	}
	if !now.Before(it.Deadline) {
		return true
	}
	if !l.drainMeter.isReliable() {
		return false
	}
	ahead := l.workAheadInClass(ln, it.Work) - float64(l.missedWork)
	wait, ok := l.drainMeter.timeToDrain(int64(max(ahead, 0)), now)
	return ok && wait > it.Deadline.Sub(now)
}
