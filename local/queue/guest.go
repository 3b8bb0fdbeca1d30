package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// lately is how long after its last request a tenant still counts as somebody who may come back at any moment.
const lately = 10 * time.Second

// asked is a tenant and when it asked last.
type asked struct {
	tenant string
	at     time.Time
}

// ask notes who asks and is let in or waits: what is kept free for others is of no use to who is refused. Two places are
// enough to say of every tenant when somebody else last did.
func (l *line[T]) ask(tenant string, now time.Time) {
	last := &l.asked[0]
	if last.tenant != tenant {
		l.asked[1] = *last
	}
	*last = asked{tenant, now}
}

// elsewhen is when somebody other than tenant asked last in class c or a more urgent one.
func (q *Queue[T]) elsewhen(tenant string, c spec.Class) (last time.Time) {
	for i := range q.lines[:c+1] {
		a := &q.lines[i].asked
		at := a[0].at
		if a[0].tenant == tenant {
			at = a[1].at
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// Yields says whether requests of class c stand back: requests of a more urgent one wait, run or have come lately. These
// must not find engines full of what could have waited.
func (q *Queue[T]) Yields(c spec.Class, now time.Time) bool {
	for i := range q.lines[:clamp(c)] {
		l := &q.lines[i]
		if at := l.asked[0].at; l.n > 0 || l.running > 0 || !at.IsZero() && now.Sub(at) < lately {
			return true
		}
	}
	return false
}

// Guest says whether a tenant that asks in class c is beyond its equal part of what runs and of what waits, in GPU time,
// while others wait, run or have asked lately. What runs of it beyond its part is a guest on what is theirs. Others are those
// of its own class and of more urgent ones: nobody leaves room to who comes after him.
//
// Who runs much while nobody holds him back is no guest for that if others wait as much; and who waits much and runs less
// than his part is owed it. So a tenant that only wants its part is never a guest, and one that is held back stops being
// a guest before it has less than its part.
func (q *Queue[T]) Guest(tenant string, c spec.Class, now time.Time) bool {
	c = clamp(c)
	var own, all, ownWork, work float64
	others, waiting := 0, 0
	for i := range q.lines[:c+1] {
		l := &q.lines[i]
		all += l.busy
		work += float64(l.work)
		waiting += l.n
		n := len(l.lanes) - l.rested
		if ln := l.lanes[tenant]; ln != nil && !ln.resting {
			own += ln.busy
			ownWork += float64(ln.work)
			n--
		}
		others = max(others, n) // who asks in two classes counts once
	}
	if others == 0 {
		at := q.elsewhen(tenant, c)
		if at.IsZero() || now.Sub(at) >= lately {
			return false
		}
		others = 1
	}
	n := float64(1 + others)
	return own*n > all && (waiting == 0 || ownWork*n > work)
}
