package queue

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Refusal is the reason why a request may not wait.
type Refusal uint8

// Reasons for a refusal.
const (
	Accepted           Refusal = iota // not refused: the request waits
	QueueFull                         // the queue is full of requests of the same or a more urgent class
	ClassFull                         // the class is at its bound
	TenantFull                        // the tenant is at its bound
	ShedForLoad                       // the queue nears saturation; batch requests are shed first
	DeadlineUnmeetable                // the request would enter after its deadline
	numRefusals
)

// String is the refusal's name in metrics and snapshots.
func (r Refusal) String() string {
	names := [numRefusals]string{"accepted", "queue_full", "class_full", "tenant_full", "shed", "deadline"}
	if r < numRefusals {
		return names[r]
	}
	return "unknown"
}

// Push adds an item to the queue, or returns why it may not wait. A full queue may have to evict other items for it:
// each has left the queue when evict, which may be nil, is called with it. rng draws which requests are shed.
func (q *Queue[T]) Push(it *Item[T], now time.Time, rng *rand.Rand, evict func(*Item[T])) Refusal {
	if it.state == itemWaiting {
		return Accepted
	}
	q.SettleItem(it, it.Cost) // it is pushed again while it runs
	it.clampFields()
	l := &q.classes[it.Class]
	ln := l.tenantQueueFor(it.Tenant, q.cfg.MaxTenants)
	l.setWeight(ln, it.Weight)
	r := q.checkAdmission(it, ln, now, rng)
	switch {
	case r != Accepted:
	case !q.admitSheddable(it, ln, now, evict):
		r = DeadlineUnmeetable
	case !q.makeClassRoom(it, ln, now, evict):
		r = ClassFull
	case !q.makeRoom(it, ln, now, evict):
		r = QueueFull
	}
	l.counts.refused[r]++
	if r != Accepted {
		l.markResting(ln)
		return r
	}
	l.arrivals.recordArrival(it.Tenant, now)
	q.addItem(it, ln, now)
	return Accepted
}

// checkAdmission returns the refusals that do not depend on other requests.
func (q *Queue[T]) checkAdmission(it *Item[T], ln *tenantQueue[T], now time.Time, rng *rand.Rand) Refusal {
	if ln.isFullFor(it, &q.cfg) {
		return TenantFull
	}
	if p := q.classShedProbability(it.Class, now); p > 0 && rng.Float64() < p {
		return ShedForLoad
	}
	if !it.ShedWhenLate && q.missesDeadline(it, ln, now) {
		return DeadlineUnmeetable
	}
	return Accepted
}

// makeClassRoom evicts an item of the same class, of a tenant that holds more of it, when the class is full.
func (q *Queue[T]) makeClassRoom(it *Item[T], ln *tenantQueue[T], now time.Time, evict func(*Item[T])) bool {
	if q.fitsClass(it, 0, 0) {
		return true
	}
	v := q.findGreedierItem(it, ln)
	if v != nil {
		q.evictItem(v, now, evict)
	}
	return v != nil
}

// fitsClass reports whether the item fits in its class after n other items with the given bytes are removed.
func (q *Queue[T]) fitsClass(it *Item[T], n int, bytes int64) bool {
	l := &q.classes[it.Class]
	items, most := q.cfg.classBound(it.Class)
	return l.itemCount-n < items && l.bytes-bytes+it.Bytes <= most
}

// makeRoom evicts until the item fits: the newest items of less urgent classes, or one item of the same class whose
// tenant holds more. It evicts only if that makes enough room.
func (q *Queue[T]) makeRoom(it *Item[T], ln *tenantQueue[T], now time.Time, evict func(*Item[T])) bool {
	if q.fitsQueue(it, 0, 0) {
		return true
	}
	if q.fitsAboveLessUrgent(it) {
		for !q.fitsQueue(it, 0, 0) {
			q.evictItem(q.classes.newestLeastUrgent(), now, evict)
		}
		return true
	}
	if v := q.findGreedierItem(it, ln); v != nil {
		q.evictItem(v, now, evict)
		return true
	}
	return false
}

// fitsQueue reports whether the item fits after n other items with the given bytes are removed.
func (q *Queue[T]) fitsQueue(it *Item[T], n int, bytes int64) bool {
	return q.itemCount-n < q.cfg.MaxItems && q.bytes-bytes+it.Bytes <= q.cfg.MaxBytes
}

func (q *Queue[T]) evictItem(v *Item[T], now time.Time, evict func(*Item[T])) {
	q.classes[v.Class].counts.evicted++
	q.RemoveItem(v, now)
	if evict != nil {
		evict(v)
	}
}

// maxEvictSearch bounds the search for a tenant that holds more, in items. A flooding tenant has the newest requests,
// so few steps find it.
const maxEvictSearch = 64

// findGreedierItem finds a recent item of a tenant that holds more of the class than the new item's tenant, and whose
// removal makes enough room.
func (q *Queue[T]) findGreedierItem(it *Item[T], ln *tenantQueue[T]) *Item[T] {
	v := q.classes[it.Class].newest
	for range maxEvictSearch {
		if v == nil {
			return nil
		}
		if len(v.tenantQueue.items) > len(ln.items)+1 && q.fitsQueue(it, 1, v.Bytes) && q.fitsClass(it, 1, v.Bytes) {
			return v
		}
		v = v.older
	}
	return nil
}

// Saturation is how close the queue is to refusing requests: 1 when it is full, or when the predicted wait of a class
// equals its target. KV memory does not count by itself: it is full in a healthy engine, and a shortage shows as
// waiting.
func (q *Queue[T]) Saturation(now time.Time) float64 {
	s := max(float64(q.itemCount)/float64(q.cfg.MaxItems), float64(q.bytes)/float64(q.cfg.MaxBytes))
	if q.itemCount == 0 || !q.drainMeter.isReliable() {
		return s
	}
	for c := range q.classes {
		if q.classes[c].itemCount == 0 {
			continue
		}
		if wait, ok := q.PredictWait(spec.Class(c), now); ok {
			s = max(s, wait.Seconds()/q.cfg.Targets[c].Seconds())
		}
	}
	return s
}

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

// Forecast is the answer that Push would give to a request now.
type Forecast struct {
	// Refusal is the reason it would be refused for, Accepted when it would wait.
	Refusal Refusal
	// ShedProbability is the additional probability of being shed for load.
	ShedProbability float64
	// Wait is the predicted wait, valid if WaitKnown: a prediction needs a drain rate.
	Wait      time.Duration
	WaitKnown bool
}

// ForecastPush returns what Push would return, and changes nothing.
func (q *Queue[T]) ForecastPush(it *Item[T], now time.Time) (f Forecast) {
	x := *it
	x.clampFields()
	l := &q.classes[x.Class]
	ln := l.peekTenantQueue(&x, q.cfg.MaxTenants)
	f.Wait, f.WaitKnown = q.predictTenantWait(ln, x.Class, x.Work, now)
	f.ShedProbability = q.classShedProbability(x.Class, now)
	switch {
	case ln.isFullFor(&x, &q.cfg):
		f.Refusal = TenantFull
	case f.ShedProbability >= 1:
		f.Refusal = ShedForLoad
	case !x.ShedWhenLate && q.missesDeadline(&x, ln, now), x.ShedWhenLate && q.cannotMeetDeadline(&x, ln, now) && (ln.largestSheddable(&x) == nil || !now.Before(x.Deadline)):
		f.Refusal = DeadlineUnmeetable
	case !q.fitsClass(&x, 0, 0) && q.findGreedierItem(&x, ln) == nil:
		f.Refusal = ClassFull
	case !q.fitsQueue(&x, 0, 0) && !q.fitsAboveLessUrgent(&x) && q.findGreedierItem(&x, ln) == nil:
		f.Refusal = QueueFull
	}
	return f
}

// fitsAboveLessUrgent reports whether the item fits after every less urgent request is removed.
func (q *Queue[T]) fitsAboveLessUrgent(it *Item[T]) bool {
	var n int
	var bytes int64
	for c := it.Class + 1; c < spec.NumClasses; c++ {
		n += q.classes[c].itemCount
		bytes += q.classes[c].bytes
	}
	return q.fitsQueue(it, n, bytes)
}

// classShedProbability is the probability that a request of class c is refused because the queue nears saturation.
func (q *Queue[T]) classShedProbability(c spec.Class, now time.Time) float64 {
	if c != spec.Batch {
		return 0
	}
	return q.cfg.shedProbability(q.Saturation(now))
}

// missesDeadline reports whether the item would enter after its deadline.
func (q *Queue[T]) missesDeadline(it *Item[T], ln *tenantQueue[T], now time.Time) bool {
	if it.Deadline.IsZero() {
		return false
	}
	wait, ok := q.predictOnTimeWait(ln, it.Class, it.Work, now)
	return !now.Before(it.Deadline) || ok && q.drainMeter.isReliable() && wait > it.Deadline.Sub(now)
}
