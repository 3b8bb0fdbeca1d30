package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Answer is what trying to place a request came to.
type Answer uint8

// The answers.
const (
	NoRoom Answer = iota // no worker has room for it now
	Held                 // workers have room, but not for one as long as it: shorter ones may pass
	Placed               // it is bound to a worker
	Beyond               // it is beyond its tenant's part (see Guest) and others would notice: they go first
)

// heldReach is how many of a tenant's requests are looked past when they are held.
const heldReach = 4

// tried are the requests that found no room during one Next.
type tried[T any] struct {
	passed [maxReach]*Item[T]
	n      int // of passed
	left   int // tries left
}

// Next tries the waiting requests in the order they are due, at most Reach of them, until try places one; that one has
// entered when Next returns it. A request that finds no room may be overtaken MaxSkips times, and is then waited for.
// nil means that nothing could be placed now.
func (q *Queue[T]) Next(now time.Time, try func(*Item[T]) Answer) *Item[T] {
	if q.n == 0 {
		return nil
	}
	if s := q.stuck; s != nil {
		switch try(s) {
		case Placed:
			return q.take(s, now)
		case NoRoom:
			return nil
		}
		q.stuck, s.skips = nil, 0
	}
	t := tried[T]{left: q.cfg.Reach}
	var order [spec.NumClasses]spec.Class
	for _, c := range q.due(now, &order) {
		if it := q.lines[c].next(&t, now, try); it != nil {
			q.overtake(&t)
			return q.take(it, now)
		}
	}
	return nil
}

// next tries the class's tenants in order.
func (l *line[T]) next(t *tried[T], now time.Time, try func(*Item[T]) Answer) *Item[T] {
	var w walk[*lane[T]]
	w.start(l.waiting)
	for t.left > 0 {
		ln, ok := w.next()
		if !ok {
			return nil
		}
		l.punctual(ln, now)
		if it := ln.next(t, try); it != nil {
			return it
		}
	}
	return nil
}

// next tries the tenant's first request, and the ones behind it only when it is held.
func (l *lane[T]) next(t *tried[T], try func(*Item[T]) Answer) *Item[T] {
	var w walk[*Item[T]]
	w.start(l.items)
	for i := 0; i < heldReach && t.left > 0; i++ {
		it, ok := w.next()
		if !ok {
			return nil
		}
		t.left--
		switch try(it) {
		case Placed:
			return it
		case NoRoom:
			it.tried = true
			t.passed[t.n] = it
			t.n++
			return nil
		case Beyond:
			return nil
		}
	}
	return nil
}

// overtake counts that somebody passed those that found no room.
func (q *Queue[T]) overtake(t *tried[T]) {
	for _, it := range t.passed[:t.n] {
		if it.skips++; it.skips >= q.cfg.MaxSkips && q.stuck == nil {
			q.stuck = it
		}
	}
}

// take lets a waiting item enter: it is charged and leaves.
func (q *Queue[T]) take(it *Item[T], now time.Time) *Item[T] {
	l, ln := &q.lines[it.Class], it.lane
	it.Cost = bounded(it.Cost)
	l.pass += it.Cost / q.weight(it.Class, now)
	l.slack = max(it.Cost/ln.weight, 0.999*l.slack)
	l.charge(ln, it.Cost)
	q.drain.count(it.Work, now)
	l.drain.count(it.Work, now)
	q.cut(it, now)
	l.count.taken++
	l.enter(it, ln)
	return it
}
