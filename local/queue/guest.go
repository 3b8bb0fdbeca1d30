package queue

import "time"

// lately is how long after its last request a tenant still counts as somebody who may come back at any moment.
const lately = 10 * time.Second

// asked is a tenant and when it asked last.
type asked struct {
	tenant string
	at     time.Time
}

// ask notes who asks. Two places are enough to say of every tenant when somebody else last did.
func (q *Queue[T]) ask(tenant string, now time.Time) {
	last := &q.asked[0]
	if last.tenant != tenant {
		q.asked[1] = *last
	}
	*last = asked{tenant, now}
}

// elsewhen is when somebody other than tenant asked last.
func (q *Queue[T]) elsewhen(tenant string) time.Time {
	if q.asked[0].tenant != tenant {
		return q.asked[0].at
	}
	return q.asked[1].at
}

// Guest says whether a tenant is beyond its equal part of what runs and of what waits, in GPU time, while
// others wait, run or have asked lately. What runs of it beyond its part is a guest on what is theirs.
//
// Who runs much while nobody holds him back is no guest for that if others wait as much; and who waits much and runs less
// than his part is owed it. So a tenant that only wants its part is never a guest, and one that is held back stops being
// a guest before it has less than its part.
func (q *Queue[T]) Guest(tenant string, now time.Time) bool {
	var own, all, ownWork, work float64
	others := 0
	for i := range q.lines {
		l := &q.lines[i]
		all += l.busy
		work += float64(l.work)
		n := len(l.lanes) - l.rested
		if ln := l.lanes[tenant]; ln != nil && !ln.resting {
			own += ln.busy
			ownWork += float64(ln.work)
			n--
		}
		others = max(others, n) // who asks in two classes counts once
	}
	if others == 0 {
		at := q.elsewhen(tenant)
		if at.IsZero() || now.Sub(at) >= lately {
			return false
		}
		others = 1
	}
	n := float64(1 + others)
	return own*n > all && (q.n == 0 || ownWork*n > work)
}
