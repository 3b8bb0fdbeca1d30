package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// runOverloadedServer simulates a server of one request at a time at double load. It returns how many of n requests
// it begins in time, and how many it begins before their deadline.
func runOverloadedServer(n int, lead time.Duration) (inTime, served int) {
	const (
		each     = 20 * time.Millisecond
		goal     = time.Second
		patience = 10 * time.Second
	)
	q, now := New[int](Config{}), testStart
	for i := range 2 * n {
		if i%2 == 0 {
			now = now.Add(each)
		}
		if i < n {
			q.Push(&testItem{Tenant: "a", Cost: 0.02, Work: 1, DueAt: now.Add(goal), LeadTime: lead, Deadline: now.Add(patience)}, now, newTestRNG(), nil)
		}
		q.ExpireItems(now, func(*testItem) {})
		if i%2 > 0 {
			continue
		}
		if it := q.PlaceNext(now, placeAny); it != nil {
			served++
			if now.Sub(it.EnqueuedAt()) <= goal {
				inTime++
			}
			q.SettleItem(it, 0.02)
		}
	}
	return inTime, served
}

// TestHalfAreInTimeAtDoubleLoad: the requests that can be served in time are, and the others wait behind them.
func TestHalfAreInTimeAtDoubleLoad(t *testing.T) {
	const n = 4000
	inTime, served := runOverloadedServer(n, 100*time.Millisecond)
	if inTime < n/2-1 {
		t.Errorf("%d of %d are begun in time, and the server could have begun half of them", inTime, n)
	}
	if served <= inTime {
		t.Errorf("%d are served in all, and %d of them in time: no late request used the capacity left over", served, inTime)
	}
}

// TestMissedRequestsGoAfterPunctualOnes: within a tenant, and missed requests keep their order among themselves.
func TestMissedRequestsGoAfterPunctualOnes(t *testing.T) {
	q := New[int](Config{})
	push := func(n int, due time.Duration) {
		q.Push(&testItem{Tenant: "a", Work: 1, Value: n, DueAt: testStart.Add(due), LeadTime: time.Second}, testStart, newTestRNG(), nil)
	}
	push(1, 2*time.Second)
	push(2, 3*time.Second)
	push(3, 9*time.Second)
	push(4, 8*time.Second)
	q.Push(&testItem{Tenant: "a", Work: 1, Value: 5}, testStart, newTestRNG(), nil) // due at once
	now := testStart.Add(2*time.Second + 1)
	for _, want := range []int{5, 4, 3, 1, 2} {
		if it := q.PlaceNext(now, placeAny); it == nil || it.Value != want {
			t.Fatalf("%+v is next, and not %d", it, want)
		}
	}
}

// TestRequestTriedInTimeKeepsItsPlace: a long prompt that was first and found no room is not passed by all later
// ones.
func TestRequestTriedInTimeKeepsItsPlace(t *testing.T) {
	q := New[int](Config{})
	q.Push(&testItem{Tenant: "a", Work: 1000, Value: 1, DueAt: testStart.Add(time.Second)}, testStart, newTestRNG(), nil)
	q.PlaceNext(testStart, func(*testItem) TryResult { return NoRoom })
	now := testStart.Add(2 * time.Second)
	q.Push(&testItem{Tenant: "a", Work: 1, Value: 2, DueAt: now.Add(time.Second)}, now, newTestRNG(), nil)
	if it := q.PlaceNext(now, placeAny); it == nil || it.Value != 1 {
		t.Errorf("%+v is next", it)
	}
}

// TestMissedWorkDoesNotCauseRefusals: work that is already late is not ahead of a request with a deadline.
func TestMissedWorkDoesNotCauseRefusals(t *testing.T) {
	q, now := New[int](Config{}), testStart
	add := func(deadline time.Duration) Refusal {
		it := &testItem{Tenant: "a", Work: 100, Cost: 1, DueAt: now.Add(time.Second)}
		if deadline > 0 {
			it.Deadline = now.Add(deadline)
		}
		return q.Push(it, now, newTestRNG(), nil)
	}
	for range 100 {
		add(0)
	}
	for range 40 { // one a second
		now = now.Add(time.Second)
		add(0)
		q.PlaceNext(now, placeAny)
	}
	if r := add(3 * time.Second); r != Accepted {
		t.Errorf("a new request that can be served within 3 s is refused: %s", r)
	}
	for range 20 {
		add(0)
	}
	if r := add(3 * time.Second); r != DeadlineUnmeetable {
		t.Errorf("behind 20 s of work that is all in time it is not refused: %s", r)
	}
}

// TestMissedWorkIsCounted: the sums of late work equal those of the items after any operations.
func TestMissedWorkIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := New[int](Config{MaxItems: 12, MaxTenants: 3}), testStart
		var all []*testItem
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				it := &testItem{
					Tenant: rapid.StringMatching("[a-e]").Draw(t, "who"), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")),
					Work: rapid.Int64Range(1, 1000).Draw(t, "work"), Cost: 1, DueAt: now.Add(time.Second), LeadTime: 100 * time.Millisecond,
				}
				q.Push(it, now, newTestRNG(), nil)
				all = append(all, it)
			case 2:
				room := rapid.Bool().Draw(t, "room")
				q.PlaceNext(now, func(*testItem) TryResult {
					if room {
						return Placed
					}
					return NoRoom
				})
			case 3:
				if len(all) > 0 {
					q.RemoveItem(all[rapid.IntRange(0, len(all)-1).Draw(t, "one")], now)
				}
			}
			for c := range q.classes {
				var want int64
				for _, it := range all {
					if it.IsWaiting() && it.missedDue && it.Class == spec.Class(c) {
						want += it.Work
					}
				}
				sums := q.classes[c].overflowTenants.missedWork
				for _, ln := range q.classes[c].tenants {
					sums += ln.missedWork
				}
				if l := &q.classes[c]; l.missedWork != want || sums != want || l.missedWork > l.work {
					t.Fatalf("%d tokens are late, the class counts %d of %d and its tenants %d", want, l.missedWork, l.work, sums)
				}
			}
		}
	})
}

// TestAgeRaisesClassWeightUpToTarget: beyond the target the weight does not rise.
func TestAgeRaisesClassWeightUpToTarget(t *testing.T) {
	q := New[int](Config{})
	q.Push(&testItem{Class: spec.Batch, Work: 1}, testStart, newTestRNG(), nil)
	at := func(after time.Duration) float64 {
		return q.classes.agedWeight(&q.cfg, spec.Batch, testStart.Add(after))
	}
	target := q.cfg.Targets[spec.Batch]
	if !(at(0) < at(target/2) && at(target/2) < at(target)) || at(target) != at(time.Hour) {
		t.Errorf("the weight is %v at first, %v and %v at the target, and %v an hour later", at(0), at(target/2), at(target), at(time.Hour))
	}
}
