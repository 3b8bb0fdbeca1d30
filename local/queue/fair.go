package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// lift moves a tenant that had nothing waiting up to those who wait, or to who left last when nobody does.
func (l *line[T]) lift(ln *lane[T]) {
	if len(l.waiting) == 0 {
		ln.counter = max(ln.counter, l.left)
		l.clock = ln.counter
		return
	}
	// The clock is behind the least counter as long as the same tenants wait. It overtakes it when newcomers keep
	// entering there, and then holds them back.
	ln.counter = max(ln.counter, l.waiting[0].counter, l.clock-2*l.slack)
}

// charge books a cost on a tenant and on the class's fair-share clock.
func (l *line[T]) charge(ln *lane[T], cost float64) {
	ln.counter = max(0, ln.counter+cost/ln.weight)
	if len(l.waiting) > 0 {
		l.clock += cost / max(l.weights, lightest)
	}
	if ln.at >= 0 {
		l.waiting.fix(ln.at)
	}
}

// due lists the classes in which somebody waits, the one to be served next first.
func (q *Queue[T]) due(now time.Time, into *[spec.NumClasses]spec.Class) []spec.Class {
	var keys [spec.NumClasses]float64
	n := 0
	for c := range q.lines {
		if q.lines[c].n == 0 {
			continue
		}
		key := q.key(spec.Class(c), now)
		i := n
		for i > 0 && keys[i-1] > key {
			into[i], keys[i] = into[i-1], keys[i-1]
			i--
		}
		into[i], keys[i] = spec.Class(c), key
		n++
	}
	return into[:n]
}

// key is a class's virtual time once its next request had been served: cost over weight, so a class that has had less
// than its share comes first, and age raises the weight.
func (q *Queue[T]) key(c spec.Class, now time.Time) float64 {
	l := &q.lines[c]
	return l.pass + l.waiting[0].items[0].Cost/q.weight(c, now)
}

// weight is the class's own, raised by the age of its oldest request up to the class's target: who has missed that waits
// for what is left, and earns no more by it.
func (q *Queue[T]) weight(c spec.Class, now time.Time) float64 {
	age := min(q.lines[c].age(now), q.cfg.Targets[c])
	return q.cfg.Weights[c] * (1 + age.Seconds()/q.cfg.Aging.Seconds())
}

// age of the oldest waiting request.
func (l *line[T]) age(now time.Time) time.Duration {
	if l.oldest == nil {
		return 0
	}
	return max(0, now.Sub(l.oldest.enqueued))
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
