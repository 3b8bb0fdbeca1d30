package queue

import "time"

// demoteMissed orders a tenant's requests that can still meet their due time before those that cannot. Earliest due
// first is the best order while all can be in time. Under overload it makes every request wait until just after its
// due time, so that none is in time although most could be. A request that missed its due time therefore waits for
// capacity that the others leave, until its deadline; missed requests keep their order among themselves.
//
// Only the first item is examined: all behind it are due later. An item that was first in time and found no room,
// because its prompt is long, keeps its position; otherwise long prompts would not be served under load.
func (l *classQueue[T]) demoteMissed(ln *tenantQueue[T], now time.Time) {
	for len(ln.items) > 0 {
		it := ln.items[0]
		if it.missedDue || it.triedInTime || it.DueAt.IsZero() || !now.After(it.DueAt.Add(-it.LeadTime)) {
			return
		}
		it.missedDue = true
		ln.missedWork += it.Work
		l.missedWork += it.Work
		ln.items.fixAt(0)
	}
}

// releaseMissedWork subtracts a leaving item from the work that cannot be in time.
func (l *classQueue[T]) releaseMissedWork(it *Item[T]) {
	if it.missedDue {
		it.tenantQueue.missedWork -= it.Work
		l.missedWork -= it.Work
	}
}
