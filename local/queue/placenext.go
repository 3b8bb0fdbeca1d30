package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TryResult is the outcome of an attempt to place a request.
type TryResult uint8

// Outcomes of a try.
const (
	NoRoom           TryResult = iota // no worker has room for it now
	HeldForLongShare                  // workers have room, but not for a request of its length: shorter ones may pass
	Placed                            // it is bound to a worker
	OverFairShare                     // its tenant is over its fair share (see ShareVerdict) and it would slow others: they go first
)

// maxHeldTries bounds the requests of one tenant that one PlaceNext tries while they are held.
const maxHeldTries = 4

// tryState holds the requests that found no room during one PlaceNext.
type tryState[T any] struct {
	passedOver      [maxTriesLimit]*Item[T]
	passedOverCount int // number used in passedOver
	triesLeft       int // remaining of MaxTries
}

// PlaceNext tries waiting requests in the order in which they are due, at most MaxTries of them, until try places
// one, and returns that one, which has then entered. A request that finds no room may be overtaken MaxSkips times;
// then the others wait for it. PlaceNext returns nil if nothing can be placed now.
func (q *Queue[T]) PlaceNext(now time.Time, try func(*Item[T]) TryResult) *Item[T] {
	if q.itemCount == 0 {
		return nil
	}
	if s := q.blockingItem; s != nil {
		switch try(s) {
		case Placed:
			return q.startWaitingItem(s, now)
		case NoRoom:
			return nil
		}
		q.blockingItem, s.skipCount = nil, 0
	}
	t := tryState[T]{triesLeft: q.cfg.MaxTries}
	var order [spec.NumClasses]spec.Class
	for _, c := range q.classes.dueClasses(&q.cfg, now, &order) {
		if it := t.tryTenants(&q.classes[c], now, try); it != nil {
			q.countOvertaken(&t)
			return q.startWaitingItem(it, now)
		}
	}
	return nil
}

// tryTenants tries the tenants of the class in order.
func (t *tryState[T]) tryTenants(l *classQueue[T], now time.Time, try func(*Item[T]) TryResult) *Item[T] {
	var w heapWalk[*tenantQueue[T]]
	w.startAt(l.waitingTenants)
	for t.triesLeft > 0 {
		ln, ok := w.nextElement()
		if !ok {
			return nil
		}
		l.demoteMissed(ln, now)
		if it := t.tryItems(ln, try); it != nil {
			return it
		}
	}
	return nil
}

// tryItems tries the tenant's first request, and later ones only while those before are held.
func (t *tryState[T]) tryItems(ln *tenantQueue[T], try func(*Item[T]) TryResult) *Item[T] {
	var w heapWalk[*Item[T]]
	w.startAt(ln.items)
	for i := 0; i < maxHeldTries && t.triesLeft > 0; i++ {
		it, ok := w.nextElement()
		if !ok {
			return nil
		}
		t.triesLeft--
		switch try(it) {
		case Placed:
			return it
		case NoRoom:
			it.triedInTime = true
			t.passedOver[t.passedOverCount] = it
			t.passedOverCount++
			return nil
		case OverFairShare:
			return nil
		}
	}
	return nil
}

// countOvertaken counts one overtaking for each request that found no room.
func (q *Queue[T]) countOvertaken(t *tryState[T]) {
	for _, it := range t.passedOver[:t.passedOverCount] {
		if it.skipCount++; it.skipCount >= q.cfg.MaxSkips && q.blockingItem == nil {
			q.blockingItem = it
		}
	}
}

// startWaitingItem moves a waiting item to running: it is charged and leaves the queue.
func (q *Queue[T]) startWaitingItem(it *Item[T], now time.Time) *Item[T] {
	l, ln := &q.classes[it.Class], it.tenantQueue
	it.Cost = clampCost(it.Cost)
	l.virtualTime += it.Cost / q.classes.agedWeight(&q.cfg, it.Class, now)
	l.maxRecentCost = max(it.Cost/ln.weight, 0.999*l.maxRecentCost)
	l.chargeCost(ln, it.Cost)
	q.drainMeter.addWork(it.Work, now)
	l.drainMeter.addWork(it.Work, now)
	q.unlinkWaitingItem(it, now)
	l.counts.placed++
	l.startItem(it, ln)
	return it
}
