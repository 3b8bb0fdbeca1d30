package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// each walks the requests that are due, class by class in order of virtual time, and in a class the first of each
// tenant in turn. It stops when visit returns false.
func (q *Queue[T]) each(now time.Time, visit func(*Item[T]) bool) {
	var order [spec.NumClasses]spec.Class
	for _, c := range q.due(now, &order) {
		l := &q.lines[c]
		for lane, first := l.turn, true; lane != nil && (first || lane != l.turn); lane, first = lane.next, false {
			if !visit(lane.head) {
				return
			}
		}
	}
}

// due lists the classes in which somebody waits, the one to be served next first.
func (q *Queue[T]) due(now time.Time, into *[spec.NumClasses]spec.Class) []spec.Class {
	n := 0
	for c := range q.lines {
		if q.lines[c].n == 0 {
			continue
		}
		i := n
		for i > 0 && q.key(into[i-1], now) > q.key(spec.Class(c), now) {
			into[i] = into[i-1]
			i--
		}
		into[i] = spec.Class(c)
		n++
	}
	return into[:n]
}

// key is a class's virtual time once its oldest request had been served: cost over weight, so a class that has had
// less than its share comes first, and age raises the weight.
func (q *Queue[T]) key(c spec.Class, now time.Time) float64 {
	l := &q.lines[c]
	return l.pass + float64(l.turn.head.Work)/q.weight(c, now)
}

// weight is the class's own, raised by the age of its oldest request.
func (q *Queue[T]) weight(c spec.Class, now time.Time) float64 {
	age := max(0, now.Sub(q.lines[c].oldest.enqueued).Seconds())
	return q.cfg.Weights[c] * (1 + age/q.cfg.Aging.Seconds())
}

// charge books work on a class's virtual time.
func (q *Queue[T]) charge(c spec.Class, work int64, now time.Time) {
	q.lines[c].pass += float64(work) / q.weight(c, now)
}

// arrive lifts a class that wakes up to the virtual time of those that never slept: no credit for having been idle.
func (q *Queue[T]) arrive(c spec.Class) {
	least, found := 0.0, false
	for o := range q.lines {
		if o != int(c) && q.lines[o].n > 0 && (!found || q.lines[o].pass < least) {
			least, found = q.lines[o].pass, true
		}
	}
	if !found {
		for o := range q.lines {
			q.lines[o].pass = 0
		}
		return
	}
	q.lines[c].pass = max(q.lines[c].pass, least)
}
