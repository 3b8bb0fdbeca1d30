package queue

import "time"

// Requests that are of no use once they are late are chosen by how many can be in time. For one server that is Moore and
// Hodgson's rule: go through them by their due moments, and whenever one would be late, leave out the longest so far. Here
// a firm request that would enter too late, at the rate at which its class has been let in, takes the place of the largest of
// its tenant's that wait, if that is larger. Others of the tenant are no longer than it needs them to be, and nobody else's
// turn is touched.

// firmly says whether a firm item may wait, for a larger one if need be.
func (q *Queue[T]) firmly(it *Item[T], ln *lane[T], now time.Time, evict func(*Item[T])) bool {
	if !it.Firm || !q.hopeless(it, ln, now) {
		return true
	}
	v := ln.bulkiest(it)
	if v == nil || !now.Before(it.Deadline) {
		return false
	}
	q.evict(v, now, evict)
	return true
}

// hopeless says that an item would enter after its deadline at the rate of its own class, behind what is before it there.
func (q *Queue[T]) hopeless(it *Item[T], ln *lane[T], now time.Time) bool {
	l := &q.lines[it.Class]
	if it.Deadline.IsZero() {
		return false
	}
	if !now.Before(it.Deadline) {
		return true
	}
	if !l.drain.sure() {
		return false
	}
	ahead := l.within(ln, it.Work) - float64(l.missed)
	wait, ok := l.drain.time(int64(max(ahead, 0)), now)
	return ok && wait > it.Deadline.Sub(now)
}

// bulkiest is the firm item of a tenant, among the first lookBack of its heap, with the most work: more than it.
func (l *lane[T]) bulkiest(it *Item[T]) (most *Item[T]) {
	work := it.Work
	for _, o := range l.items[:min(len(l.items), lookBack)] {
		if o.Firm && o.Work > work {
			most, work = o, o.Work
		}
	}
	return most
}
