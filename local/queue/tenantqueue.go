package queue

// tenantQueue is one tenant in one class: its waiting and running requests and its cost so far.
type tenantQueue[T any] struct {
	tenant         string
	items          heap[*Item[T]] // waiting, the earliest due first
	work           int64
	missedWork     int64 // part of work that can no longer be in time
	bytes          int64
	running        int
	busySeconds    float64 // expected cost of the running requests, in seconds of GPU time
	virtualCounter float64 // virtual time of the tenant: seconds of GPU time / weight
	weight         float64
	joinedSeq      uint64 // when it began to wait; among equal counters the first goes first
	heapPos        int    // in the class's heap; -1 when it has nothing waiting
	isResting      bool   // on the list of tenants that neither wait nor run
	restingLonger  *tenantQueue[T]
	restingShorter *tenantQueue[T]
}

func (l *tenantQueue[T]) isBefore(o *tenantQueue[T]) bool {
	if l.virtualCounter != o.virtualCounter {
		return l.virtualCounter < o.virtualCounter
	}
	return l.joinedSeq < o.joinedSeq
}

func (l *tenantQueue[T]) heapPosition() *int { return &l.heapPos }

// maxKeptItems bounds the capacity that an empty tenant queue keeps, in items.
const maxKeptItems = 64

// isFullFor reports whether the tenant is at its bound with the item added.
func (l *tenantQueue[T]) isFullFor(it *Item[T], cfg *Config) bool {
	n, b := cfg.tenantBound(it.Class)
	return len(l.items) >= n || l.bytes+it.Bytes > b
}

// largestSheddable is the tenant's sheddable item with the most work, above that of it, among the first
// maxEvictSearch of the tenant's heap.
func (l *tenantQueue[T]) largestSheddable(it *Item[T]) (most *Item[T]) {
	work := it.Work
	for _, o := range l.items[:min(len(l.items), maxEvictSearch)] {
		if o.ShedWhenLate && o.Work > work {
			most, work = o, o.Work
		}
	}
	return most
}

// restingList are the tenant queues of a class that neither wait nor run, by the time since which they rest. They keep
// their counters, and may be reused for another tenant.
type restingList[T any] struct {
	longest, latest *tenantQueue[T] // ends of the list
	count           int
}

// addTenant appends a tenant queue, unless it is on the list.
func (r *restingList[T]) addTenant(ln *tenantQueue[T]) {
	if ln.isResting {
		return
	}
	if cap(ln.items) > maxKeptItems {
		ln.items = nil
	}
	r.count++
	ln.isResting, ln.restingLonger, ln.restingShorter = true, r.latest, nil
	if r.latest != nil {
		r.latest.restingShorter = ln
	} else {
		r.longest = ln
	}
	r.latest = ln
}

// removeTenant removes a tenant queue, if it is on the list.
func (r *restingList[T]) removeTenant(ln *tenantQueue[T]) {
	if !ln.isResting {
		return
	}
	if ln.restingLonger != nil {
		ln.restingLonger.restingShorter = ln.restingShorter
	} else {
		r.longest = ln.restingShorter
	}
	if ln.restingShorter != nil {
		ln.restingShorter.restingLonger = ln.restingLonger
	} else {
		r.latest = ln.restingLonger
	}
	r.count--
	ln.isResting, ln.restingLonger, ln.restingShorter = false, nil, nil
}
