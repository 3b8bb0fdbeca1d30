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

// classQueue is one class: its tenants, and all its waiting items by arrival.
type classQueue[T any] struct {
	tenants                       map[string]*tenantQueue[T]
	overflowTenants               tenantQueue[T] // shared by the tenants beyond MaxTenants
	waitingTenants                heap[*tenantQueue[T]]
	waitingWeight                 float64         // sum over the waiting tenants
	longestResting, latestResting *tenantQueue[T] // ends of the list of resting tenants; the longest resting one is replaced first
	oldest, newest                *Item[T]
	running                       int
	busySeconds                   float64 // sum over its tenants
	restingCount                  int     // tenants on the resting list
	itemCount                     int
	work                          int64
	missedWork                    int64 // part of work that can no longer be in time
	bytes                         int64
	virtualTime                   float64        // virtual time of the class: the lowest is served next
	lastLeftCounter               float64        // counter of the tenant that left the queue last
	fairShareClock                float64        // fair share so far of a tenant that has waited all the time
	maxRecentCost                 float64        // largest recent cost / weight, decaying
	drainMeter                    drainMeter     // of this class's work alone
	lastArrivals                  [2]lastArrival // the latest tenant, and the latest other one
	counts                        classCounts
}

// tenantQueueFor finds or creates a tenant's queue. At max tenants it reuses the one that has rested longest.
func (l *classQueue[T]) tenantQueueFor(tenant string, max int) *tenantQueue[T] {
	if ln := l.tenants[tenant]; ln != nil {
		return ln
	}
	var ln *tenantQueue[T]
	switch {
	case len(l.tenants) < max:
		ln = &tenantQueue[T]{heapPos: -1}
	case l.longestResting != nil:
		ln = l.longestResting
		l.unmarkResting(ln)
		delete(l.tenants, ln.tenant)
		*ln = tenantQueue[T]{heapPos: -1, items: ln.items}
	default:
		return &l.overflowTenants
	}
	ln.tenant = tenant
	l.tenants[tenant] = ln
	return ln
}

// setWeight sets a tenant's weight to that of its newest request. The tenants in the overflow queue weigh 1 together.
func (l *classQueue[T]) setWeight(ln *tenantQueue[T], weight float64) {
	if ln == &l.overflowTenants {
		weight = 1
	}
	if ln.heapPos >= 0 {
		l.waitingWeight += weight - ln.weight
	}
	ln.weight = weight
}

// addWaitingTenant and removeWaitingTenant maintain the heap of waiting tenants and the sum of their weights.
func (l *classQueue[T]) addWaitingTenant(ln *tenantQueue[T]) {
	l.waitingTenants.push(ln)
	l.waitingWeight += ln.weight
}

func (l *classQueue[T]) removeWaitingTenant(ln *tenantQueue[T]) {
	l.waitingTenants.removeAt(ln.heapPos)
	if l.waitingWeight -= ln.weight; len(l.waitingTenants) == 0 {
		l.waitingWeight = 0 // clear the rounding error
	}
	l.lastLeftCounter = ln.virtualCounter
}

// markResting puts a tenant queue that neither waits nor runs on the list of those that may be reused.
func (l *classQueue[T]) markResting(ln *tenantQueue[T]) {
	if ln == &l.overflowTenants || ln.isResting || ln.running > 0 || len(ln.items) > 0 {
		return
	}
	if cap(ln.items) > maxKeptItems {
		ln.items = nil
	}
	l.restingCount++
	ln.isResting, ln.restingLonger, ln.restingShorter = true, l.latestResting, nil
	if l.latestResting != nil {
		l.latestResting.restingShorter = ln
	} else {
		l.longestResting = ln
	}
	l.latestResting = ln
}

func (l *classQueue[T]) unmarkResting(ln *tenantQueue[T]) {
	if !ln.isResting {
		return
	}
	if ln.restingLonger != nil {
		ln.restingLonger.restingShorter = ln.restingShorter
	} else {
		l.longestResting = ln.restingShorter
	}
	if ln.restingShorter != nil {
		ln.restingShorter.restingLonger = ln.restingLonger
	} else {
		l.latestResting = ln.restingLonger
	}
	l.restingCount--
	ln.isResting, ln.restingLonger, ln.restingShorter = false, nil, nil
}

// appendItem and unlinkItem maintain the class's list of items by arrival.
func (l *classQueue[T]) appendItem(it *Item[T]) {
	it.older, it.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = it
	} else {
		l.oldest = it
	}
	l.newest = it
	l.itemCount++
	l.work += it.Work
	l.bytes += it.Bytes
}

func (l *classQueue[T]) unlinkItem(it *Item[T]) {
	if it.older != nil {
		it.older.newer = it.newer
	} else {
		l.oldest = it.newer
	}
	if it.newer != nil {
		it.newer.older = it.older
	} else {
		l.newest = it.older
	}
	it.older, it.newer = nil, nil
	l.itemCount--
	l.work -= it.Work
	l.bytes -= it.Bytes
}
