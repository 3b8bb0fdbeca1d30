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

// Standing says how a tenant stands, by the number of its requests that run in its class, beside all that run in it
// and in more urgent ones: each tenant of a class counts as one, and nobody leaves room to who comes after him.
func (q *Queue[T]) Standing(tenant string, c spec.Class) Share {
	c = clamp(c)
	own := q.lines[c].lanes[tenant]
	active, less, all := 0, 0, 0
	for i := range q.lines {
		l := &q.lines[i]
		n := len(l.lanes) - l.rested
		if i > int(c) {
			less += n
			continue
		}
		active += n
		all += l.running
	}
	if own == nil || own.resting {
		active++ // it is about to be
	}
	switch {
	case active+less < 2:
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
