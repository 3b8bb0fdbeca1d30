package queue

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Refusal says why a request may not wait.
type Refusal uint8

// The refusals.
const (
	Accepted   Refusal = iota // it waits
	Full                      // the queue is full of requests that are as urgent or more
	ClassFull                 // its class holds all it may
	TenantFull                // its tenant holds all it may
	Shed                      // the queue nears saturation, and its class is the first to go
	Late                      // it would enter after its deadline
	numRefusals
)

// String is the refusal in metrics and in snapshots.
func (r Refusal) String() string {
	names := [numRefusals]string{"accepted", "queue_full", "class_full", "tenant_full", "shed", "deadline"}
	if r < numRefusals {
		return names[r]
	}
	return "unknown"
}

// Push makes an item wait, or says why it may not. When the queue is full somebody else may have to go for it: evicted
// ones have left the queue when evict, which may be nil, is told. rng decides who is shed.
func (q *Queue[T]) Push(it *Item[T], now time.Time, rng *rand.Rand, evict func(*Item[T])) Refusal {
	if it.state == waiting {
		return Accepted
	}
	q.forget(it)
	it.tidy()
	l := &q.lines[it.Class]
	ln := l.lane(it.Tenant, q.cfg.MaxTenants)
	l.weigh(ln, it.Weight)
	r := q.judge(it, ln, now, rng)
	switch {
	case r != Accepted:
	case !q.firmly(it, ln, now, evict):
		r = Late
	case !q.makeClassRoom(it, ln, now, evict):
		r = ClassFull
	case !q.makeRoom(it, ln, now, evict):
		r = Full
	}
	l.count.refused[r]++
	if r != Accepted {
		l.rest(ln)
		return r
	}
	l.ask(it.Tenant, now)
	q.add(it, ln, now)
	return Accepted
}

// judge says whether an item may wait, as far as that does not depend on others.
func (q *Queue[T]) judge(it *Item[T], ln *lane[T], now time.Time, rng *rand.Rand) Refusal {
	if q.tenantFull(it, ln) {
		return TenantFull
	}
	if p := q.shedding(it.Class, now); p > 0 && rng.Float64() < p {
		return Shed
	}
	if !it.Firm && q.late(it, ln, now) {
		return Late
	}
	return Accepted
}

// makeClassRoom refuses one of the item's own class, of a tenant that holds more, when the class is full.
func (q *Queue[T]) makeClassRoom(it *Item[T], ln *lane[T], now time.Time, evict func(*Item[T])) bool {
	if q.classFits(it, 0, 0) {
		return true
	}
	v := q.greedier(it, ln)
	if v != nil {
		q.evict(v, now, evict)
	}
	return v != nil
}

// classFits says whether the item fits in its class once n others of so many bytes were gone.
func (q *Queue[T]) classFits(it *Item[T], n int, bytes int64) bool {
	l := &q.lines[it.Class]
	items, most := q.cfg.classBound(it.Class)
	return l.n-n < items && l.bytes-bytes+it.Bytes <= most
}

// makeRoom refuses others until the item fits: the newest of the least urgent class that is less urgent than the item,
// or one of its own class whose tenant holds more. Nobody is refused in vain.
func (q *Queue[T]) makeRoom(it *Item[T], ln *lane[T], now time.Time, evict func(*Item[T])) bool {
	if q.fits(it, 0, 0) {
		return true
	}
	if q.outranks(it) {
		for !q.fits(it, 0, 0) {
			q.evict(q.leastUrgent(), now, evict)
		}
		return true
	}
	if v := q.greedier(it, ln); v != nil {
		q.evict(v, now, evict)
		return true
	}
	return false
}

// fits says whether the item fits once n others of so many bytes were gone.
func (q *Queue[T]) fits(it *Item[T], n int, bytes int64) bool {
	return q.n-n < q.cfg.MaxItems && q.bytes-bytes+it.Bytes <= q.cfg.MaxBytes
}

func (q *Queue[T]) evict(v *Item[T], now time.Time, tell func(*Item[T])) {
	q.lines[v.Class].count.evicted++
	q.Remove(v, now)
	if tell != nil {
		tell(v)
	}
}

func (q *Queue[T]) leastUrgent() *Item[T] {
	for c := spec.NumClasses - 1; c >= 0; c-- {
		if v := q.lines[c].newest; v != nil {
			return v
		}
	}
	return nil
}

// lookBack bounds the search for a greedier tenant: who floods has the newest requests.
const lookBack = 64

// greedier finds a new request of a tenant that holds more of the class than the item's, and whose leaving is enough.
func (q *Queue[T]) greedier(it *Item[T], ln *lane[T]) *Item[T] {
	v := q.lines[it.Class].newest
	for range lookBack {
		if v == nil {
			return nil
		}
		if len(v.lane.items) > len(ln.items)+1 && q.fits(it, 1, v.Bytes) && q.classFits(it, 1, v.Bytes) {
			return v
		}
		v = v.older
	}
	return nil
}

// shedProbability grows from nothing at ShedFrom to certainty ShedSpan above it, slowly first.
func (q *Queue[T]) shedProbability(saturation float64) float64 {
	x := max(0, min((saturation-q.cfg.ShedFrom)/q.cfg.ShedSpan, 1))
	return x * x
}

// Saturation says how near the queue is to having to refuse: 1 when it is full, or when a class would have to wait as
// long as its target. KV memory does not count by itself: it is full in a healthy engine, and its lack shows as waiting.
func (q *Queue[T]) Saturation(now time.Time) float64 {
	s := max(float64(q.n)/float64(q.cfg.MaxItems), float64(q.bytes)/float64(q.cfg.MaxBytes))
	if q.n == 0 || !q.drain.sure() {
		return s
	}
	for c := range q.lines {
		if q.lines[c].n == 0 {
			continue
		}
		if wait, ok := q.Wait(spec.Class(c), now); ok {
			s = max(s, wait.Seconds()/q.cfg.Targets[c].Seconds())
		}
	}
	return s
}
