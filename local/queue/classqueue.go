package queue

import (
	"time"
)

// classQueue is one class: its tenants, and all its waiting items by arrival.
type classQueue[T any] struct {
	tenants         map[string]*tenantQueue[T]
	overflowTenants tenantQueue[T] // shared by the tenants beyond MaxTenants
	waitingTenants  heap[*tenantQueue[T]]
	waitingWeight   float64        // sum over the waiting tenants
	resting         restingList[T] // the longest resting one is replaced first
	oldest, newest  *Item[T]
	running         int
	busySeconds     float64 // sum over its tenants
	itemCount       int
	work            int64
	missedWork      int64 // part of work that can no longer be in time
	bytes           int64
	virtualTime     float64    // virtual time of the class: the lowest is served next
	lastLeftCounter float64    // counter of the tenant that left the queue last
	fairShareClock  float64    // fair share so far of a tenant that has waited all the time
	maxRecentCost   float64    // largest recent cost / weight, decaying
	drainMeter      drainMeter // of this class's work alone
	arrivals        recentArrivals
	counts          classCounts
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
	case l.resting.longest != nil:
		ln = l.resting.longest
		l.resting.removeTenant(ln)
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
	if ln != &l.overflowTenants && ln.running == 0 && len(ln.items) == 0 {
		l.resting.addTenant(ln)
	}
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

// peekTenantQueue is the tenant queue that a request would wait in, or an equivalent one.
func (l *classQueue[T]) peekTenantQueue(it *Item[T], most int) *tenantQueue[T] {
	switch ln := l.tenants[it.Tenant]; {
	case ln != nil:
		return ln
	case len(l.tenants) >= most && l.resting.longest == nil:
		return &l.overflowTenants
	}
	return &tenantQueue[T]{tenant: it.Tenant, heapPos: -1, weight: it.Weight}
}

// startItem moves an item to running.
func (l *classQueue[T]) startItem(it *Item[T], ln *tenantQueue[T]) {
	it.tenantQueue, it.state = ln, itemRunning
	ln.running++
	l.running++
	it.bookedCost = it.Cost
	ln.busySeconds += it.bookedCost
	l.busySeconds += it.bookedCost
}

// liftCounter raises the counter of a tenant that had nothing waiting to the lowest of the waiting tenants, or to
// that of the tenant that left last if none waits.
func (l *classQueue[T]) liftCounter(ln *tenantQueue[T]) {
	if len(l.waitingTenants) == 0 {
		ln.virtualCounter = max(ln.virtualCounter, l.lastLeftCounter)
		l.fairShareClock = ln.virtualCounter
		return
	}
	// The clock stays behind the lowest counter while the same tenants wait. It overtakes it when new tenants keep
	// entering at the lowest counter, and then delays them.
	ln.virtualCounter = max(ln.virtualCounter, l.waitingTenants[0].virtualCounter, l.fairShareClock-2*l.maxRecentCost)
}

// chargeCost adds a cost to a tenant's counter and to the class's fair-share clock.
func (l *classQueue[T]) chargeCost(ln *tenantQueue[T], cost float64) {
	ln.virtualCounter = max(0, ln.virtualCounter+cost/ln.weight)
	if len(l.waitingTenants) > 0 {
		l.fairShareClock += cost / max(l.waitingWeight, minTenantWeight)
	}
	if ln.heapPos >= 0 {
		l.waitingTenants.fixAt(ln.heapPos)
	}
}

// oldestAge is the age of the oldest waiting request.
func (l *classQueue[T]) oldestAge(now time.Time) time.Duration {
	if l.oldest == nil {
		return 0
	}
	return max(0, now.Sub(l.oldest.enqueuedAt))
}

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
