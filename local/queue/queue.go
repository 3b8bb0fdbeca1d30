package queue

import (
	"time"
)

// Queue holds one model's waiting requests and the cost counters of its tenants.
type Queue[T any] struct {
	cfg          Config
	classes      classSet[T]
	itemCount    int
	bytes        int64
	seq          uint64
	drainMeter   drainMeter
	blockingItem *Item[T] // overtaken MaxSkips times: nothing passes it any more
}

// New returns an empty queue.
func New[T any](cfg Config) *Queue[T] {
	q := &Queue[T]{cfg: cfg.withDefaults()}
	for c := range q.classes {
		q.classes[c].tenants = map[string]*tenantQueue[T]{}
		q.classes[c].overflowTenants = tenantQueue[T]{tenant: "(others)", heapPos: -1}
	}
	return q
}

// SetConfig changes bounds and weights. Waiting items stay, even beyond a bound that was lowered.
func (q *Queue[T]) SetConfig(cfg Config) { q.cfg = cfg.withDefaults() }

// Len is the number of waiting requests.
func (q *Queue[T]) Len() int { return q.itemCount }

// WaitingWork is the waiting requests' prefill in tokens.
func (q *Queue[T]) WaitingWork() (sum int64) {
	for c := range q.classes {
		sum += q.classes[c].work
	}
	return sum
}

// RecordDirectEntry records a request that enters without waiting, because the queue is empty and a worker has room.
func (q *Queue[T]) RecordDirectEntry(it *Item[T], now time.Time) {
	if it.state == itemWaiting {
		return
	}
	q.SettleItem(it, it.Cost) // it is pushed again while it runs
	it.clampFields()
	it.enqueuedAt = now
	l := &q.classes[it.Class]
	l.arrivals.recordArrival(it.Tenant, now)
	ln := l.tenantQueueFor(it.Tenant, q.cfg.MaxTenants)
	l.setWeight(ln, it.Weight)
	l.resting.removeTenant(ln)
	if ln.heapPos < 0 {
		l.liftCounter(ln)
	}
	l.chargeCost(ln, it.Cost)
	l.lastLeftCounter = ln.virtualCounter
	l.counts.entered++
	l.startItem(it, ln)
}

// SettleItem records the end of a running request and its actual cost in seconds of GPU time, 0 if it did no work.
// It is idempotent.
func (q *Queue[T]) SettleItem(it *Item[T], cost float64) {
	if it.state != itemRunning {
		return
	}
	l, ln := &q.classes[it.Class], it.tenantQueue
	if cost = min(finiteOrZero(cost), maxCost); cost < 0 {
		cost = 0
	}
	l.chargeCost(ln, cost-it.Cost)
	it.tenantQueue, it.state = nil, itemOut
	ln.running--
	l.running--
	ln.busySeconds -= it.bookedCost
	l.busySeconds -= it.bookedCost
	if ln.running == 0 {
		ln.busySeconds = 0 // clear the rounding error
	}
	if l.running == 0 {
		l.busySeconds = 0
	}
	l.markResting(ln)
}

// RemoveItem removes a waiting item because its client left or it was refused. It is idempotent.
func (q *Queue[T]) RemoveItem(it *Item[T], now time.Time) {
	if it == nil || it.state != itemWaiting {
		return
	}
	l, ln := &q.classes[it.Class], it.tenantQueue
	q.unlinkWaitingItem(it, now)
	l.counts.removed++
	l.markResting(ln)
}

// addItem adds an item to its tenant queue and its class.
func (q *Queue[T]) addItem(it *Item[T], ln *tenantQueue[T], now time.Time) {
	l := &q.classes[it.Class]
	if l.itemCount == 0 {
		q.classes.liftClass(it.Class)
		l.drainMeter.startClock(now)
	}
	if q.itemCount == 0 {
		q.drainMeter.startClock(now)
	}
	q.seq++
	it.seq, it.enqueuedAt, it.skipCount, it.missedDue, it.triedInTime, it.tenantQueue, it.state = q.seq, now, 0, false, false, ln, itemWaiting
	l.resting.removeTenant(ln)
	if ln.heapPos < 0 {
		l.liftCounter(ln)
		ln.joinedSeq = q.seq
		ln.items.push(it)
		l.addWaitingTenant(ln)
	} else {
		ln.items.push(it)
	}
	ln.work += it.Work
	ln.bytes += it.Bytes
	l.appendItem(it)
	q.itemCount++
	q.bytes += it.Bytes
}

// unlinkWaitingItem removes a waiting item from all lists and sums.
func (q *Queue[T]) unlinkWaitingItem(it *Item[T], now time.Time) {
	l, ln := &q.classes[it.Class], it.tenantQueue
	ln.items.removeAt(it.heapPos)
	l.releaseMissedWork(it)
	ln.work -= it.Work
	ln.bytes -= it.Bytes
	if len(ln.items) == 0 {
		l.removeWaitingTenant(ln)
	}
	l.unlinkItem(it)
	if l.itemCount == 0 {
		l.drainMeter.stopClock(now)
	}
	q.itemCount--
	q.bytes -= it.Bytes
	if q.blockingItem == it {
		q.blockingItem = nil
	}
	it.tenantQueue, it.state = nil, itemOut
	if q.itemCount == 0 {
		q.drainMeter.stopClock(now)
	}
}

// ExpireItems removes every request whose deadline has passed and passes it to drop.
func (q *Queue[T]) ExpireItems(now time.Time, drop func(*Item[T])) {
	for c := range q.classes {
		for it := q.classes[c].oldest; it != nil; {
			next := it.newer
			if !it.Deadline.IsZero() && !now.Before(it.Deadline) {
				q.RemoveItem(it, now)
				drop(it)
			}
			it = next
		}
	}
}
