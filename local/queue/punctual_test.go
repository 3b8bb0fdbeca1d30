package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// overloaded plays a server of one request at a time that is asked for twice what it can do, and says how many of so many
// requests it begins in time, and how many it begins at all before their deadline.
func overloaded(n int, lead time.Duration) (inTime, served int) {
	const (
		each     = 20 * time.Millisecond
		goal     = time.Second
		patience = 10 * time.Second
	)
	q, now := New[int](Config{}), t0
	for i := range 2 * n {
		if i%2 == 0 {
			now = now.Add(each)
		}
		if i < n {
			q.Push(&item{Tenant: "a", Cost: 0.02, Work: 1, Due: now.Add(goal), Lead: lead, Deadline: now.Add(patience)}, now, dice(), nil)
		}
		q.Expire(now, func(*item) {})
		if i%2 > 0 {
			continue
		}
		if it := q.Next(now, take); it != nil {
			served++
			if now.Sub(it.Enqueued()) <= goal {
				inTime++
			}
			q.Settle(it, 0.02)
		}
	}
	return inTime, served
}

// TestHalfAreInTimeWhereTwiceAsMuchIsAskedFor: those who can be served are served in time, and the others wait behind them.
func TestHalfAreInTimeWhereTwiceAsMuchIsAskedFor(t *testing.T) {
	const n = 4000
	inTime, served := overloaded(n, 100*time.Millisecond)
	if inTime < n/2-1 {
		t.Errorf("%d of %d are begun in time, and the server could have begun half of them", inTime, n)
	}
	if served <= inTime {
		t.Errorf("%d are served in all, and %d of them in time: nobody who was late found what the others had left", served, inTime)
	}
}

// TestWhoHasMissedHisMomentGoesAfterWhoHasNot in one tenant's requests, and keeps his place among his like.
func TestWhoHasMissedHisMomentGoesAfterWhoHasNot(t *testing.T) {
	q := New[int](Config{})
	push := func(n int, due time.Duration) {
		q.Push(&item{Tenant: "a", Work: 1, Value: n, Due: t0.Add(due), Lead: time.Second}, t0, dice(), nil)
	}
	push(1, 2*time.Second)
	push(2, 3*time.Second)
	push(3, 9*time.Second)
	push(4, 8*time.Second)
	q.Push(&item{Tenant: "a", Work: 1, Value: 5}, t0, dice(), nil) // due at once, whatever the time
	now := t0.Add(2*time.Second + 1)
	for _, want := range []int{5, 4, 3, 1, 2} {
		if it := q.Next(now, take); it == nil || it.Value != want {
			t.Fatalf("%+v is next, and not %d", it, want)
		}
	}
}

// TestWhoFoundNoRoomInTimeKeepsHisPlace: a long prompt is not passed by all that come after it.
func TestWhoFoundNoRoomInTimeKeepsHisPlace(t *testing.T) {
	q := New[int](Config{})
	q.Push(&item{Tenant: "a", Work: 1000, Value: 1, Due: t0.Add(time.Second)}, t0, dice(), nil)
	q.Next(t0, func(*item) Answer { return NoRoom })
	now := t0.Add(2 * time.Second)
	q.Push(&item{Tenant: "a", Work: 1, Value: 2, Due: now.Add(time.Second)}, now, dice(), nil)
	if it := q.Next(now, take); it == nil || it.Value != 1 {
		t.Errorf("%+v is next", it)
	}
}

// TestNobodyIsRefusedForThoseThatHeWillPass: work that is late already does not stand before a request with a deadline.
func TestNobodyIsRefusedForThoseThatHeWillPass(t *testing.T) {
	q, now := New[int](Config{}), t0
	add := func(deadline time.Duration) Refusal {
		it := &item{Tenant: "a", Work: 100, Cost: 1, Due: now.Add(time.Second)}
		if deadline > 0 {
			it.Deadline = now.Add(deadline)
		}
		return q.Push(it, now, dice(), nil)
	}
	for range 100 {
		add(0)
	}
	for range 40 { // one a second
		now = now.Add(time.Second)
		add(0)
		q.Next(now, take)
	}
	if r := add(3 * time.Second); r != Accepted {
		t.Errorf("a newcomer that can be served within 3 s is refused: %s", r)
	}
	for range 20 {
		add(0)
	}
	if r := add(3 * time.Second); r != Late {
		t.Errorf("behind 20 s of work that is all in time it is not refused: %s", r)
	}
}

// TestWhatIsLateIsCounted: the sums of late work are those of the items, whatever happens.
func TestWhatIsLateIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := New[int](Config{MaxItems: 12, MaxTenants: 3}), t0
		var all []*item
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				it := &item{
					Tenant: rapid.StringMatching("[a-e]").Draw(t, "who"), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")),
					Work: rapid.Int64Range(1, 1000).Draw(t, "work"), Cost: 1, Due: now.Add(time.Second), Lead: 100 * time.Millisecond,
				}
				q.Push(it, now, dice(), nil)
				all = append(all, it)
			case 2:
				room := rapid.Bool().Draw(t, "room")
				q.Next(now, func(*item) Answer {
					if room {
						return Placed
					}
					return NoRoom
				})
			case 3:
				if len(all) > 0 {
					q.Remove(all[rapid.IntRange(0, len(all)-1).Draw(t, "one")], now)
				}
			}
			for c := range q.lines {
				var want int64
				for _, it := range all {
					if it.Waiting() && it.missed && it.Class == spec.Class(c) {
						want += it.Work
					}
				}
				lanes := q.lines[c].others.missed
				for _, ln := range q.lines[c].lanes {
					lanes += ln.missed
				}
				if l := &q.lines[c]; l.missed != want || lanes != want || l.missed > l.work {
					t.Fatalf("%d tokens are late, the class counts %d of %d and its tenants %d", want, l.missed, l.work, lanes)
				}
			}
		}
	})
}

// TestAgeRaisesAClassUpToItsTarget and no further: those who have missed it wait for what is left.
func TestAgeRaisesAClassUpToItsTarget(t *testing.T) {
	q := New[int](Config{})
	q.Push(&item{Class: spec.Batch, Work: 1}, t0, dice(), nil)
	at := func(after time.Duration) float64 { return q.weight(spec.Batch, t0.Add(after)) }
	target := q.cfg.Targets[spec.Batch]
	if !(at(0) < at(target/2) && at(target/2) < at(target)) || at(target) != at(time.Hour) {
		t.Errorf("the weight is %v at first, %v and %v at the target, and %v an hour later", at(0), at(target/2), at(target), at(time.Hour))
	}
}
