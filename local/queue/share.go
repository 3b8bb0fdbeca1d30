package queue

import "github.com/spillway-lb/spillway/internal/spec"

// Share is how a tenant of one class stands among those that wait or run.
type Share uint8

// The shares.
const (
	Alone Share = iota // there is nobody else
	Under              // it runs no more than its equal part
	Over               // it runs more: what is left belongs to the others
)

// Standing says how a tenant stands, by the number of its requests that run, over all classes: each tenant of a class
// counts as one.
func (q *Queue[T]) Standing(tenant string, c spec.Class) Share {
	own := q.lines[clamp(c)].lanes[tenant]
	active, all := 0, 0
	for i := range q.lines {
		l := &q.lines[i]
		active += len(l.lanes) - l.rested
		all += l.running
	}
	if own == nil || own.resting {
		active++ // it is about to be
	}
	switch {
	case active < 2:
		return Alone
	case own != nil && own.running*active > all:
		return Over
	}
	return Under
}

// Rivals says whether others than this tenant wait.
func (q *Queue[T]) Rivals(tenant string, c spec.Class) bool {
	c = clamp(c)
	for i := range q.lines {
		n := len(q.lines[i].waiting)
		if spec.Class(i) == c {
			if own := q.lines[i].lanes[tenant]; own != nil && own.at >= 0 {
				n--
			}
		}
		if n > 0 {
			return true
		}
	}
	return false
}
