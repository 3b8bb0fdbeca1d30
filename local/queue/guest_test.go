package queue

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestWhoIsAGuest(t *testing.T) {
	q, now := New[int](Config{}), t0
	enter := func(tenant string, c spec.Class, cost float64) *item {
		it := &item{Tenant: tenant, Class: c, Cost: cost, Work: 100}
		q.Pass(it, now)
		return it
	}
	push := func(tenant string, n int, work int64) {
		for range n {
			if r := q.Push(&item{Tenant: tenant, Cost: 0.01, Work: work}, now, dice(), nil); r != Accepted {
				t.Fatal(r)
			}
		}
	}
	guest := func(what, tenant string, want bool) {
		t.Helper()
		if q.Guest(tenant, spec.Interactive, now) != want {
			t.Errorf("%s: %s is a guest: %v", what, tenant, !want)
		}
	}
	large := enter("flood", spec.Interactive, 3)
	push("flood", 5, 100)
	guest("nobody else was ever there", "flood", false)
	small := []*item{enter("light", spec.Interactive, 0.5), enter("light", spec.Interactive, 0.5)}
	guest("one large against two small ones", "flood", true)
	guest("it runs less than its part", "light", false)
	push("other", 5, 100)
	guest("a third one waits, who runs nothing", "other", false)
	push("light", 50, 100)
	guest("others wait longer than it does", "flood", false)
	q.Expire(now, func(*item) {})
	for _, it := range small {
		q.Settle(it, it.Cost)
	}
	q.Settle(large, 3)
	guest("it runs nothing", "flood", false)
}

// TestAGuestIsOneOnlyWhileOthersWereThereLately: the zone is a lone tenant's again soon after the others have left.
func TestAGuestIsOneOnlyWhileOthersWereThereLately(t *testing.T) {
	q := New[int](Config{})
	light := &item{Tenant: "light", Cost: 0.1, Work: 1}
	q.Pass(light, t0)
	q.Pass(&item{Tenant: "flood", Cost: 1, Work: 1}, t0)
	q.Settle(light, 0.1)
	for after, want := range map[time.Duration]bool{0: true, lately - 1: true, lately: false, time.Hour: false} {
		if got := q.Guest("flood", spec.Interactive, t0.Add(after)); got != want {
			t.Errorf("%v after the other's last request it is a guest: %v", after, got)
		}
	}
}

// TestSomebodyIsNoGuest: whatever runs and waits, not everybody there is a guest, so that a zone with more than one tenant
// is never kept idle by what they leave to each other.
func TestSomebodyIsNoGuest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := New[int](Config{}), t0
		var items []*item
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			it := &item{
				Tenant: fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "tenant")), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")),
				Cost: rapid.Float64Range(1e-6, 10).Draw(t, "cost"), Work: rapid.Int64Range(1, 1e6).Draw(t, "work"),
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.Pass(it, now)
				items = append(items, it)
			case 1:
				q.Push(it, now, dice(), nil)
			case 2:
				if it := q.Next(now, take); it != nil {
					items = append(items, it)
				}
			case 3:
				if len(items) > 0 {
					q.Settle(items[0], it.Cost)
					items = items[1:]
				}
			}
			there, guests := map[string]bool{}, 0
			for c := range q.lines {
				for name, ln := range q.lines[c].lanes {
					if !ln.resting {
						there[name] = true
					}
				}
			}
			for name := range there {
				if q.Guest(name, spec.Batch, now) {
					guests++
				}
			}
			if len(there) > 1 && guests == len(there) {
				t.Fatalf("all %d tenants are guests", guests)
			}
		}
		for _, it := range items {
			q.Settle(it, 0)
		}
		for c := range q.lines {
			if q.lines[c].busy != 0 {
				t.Fatalf("nothing runs and %v s are busy", q.lines[c].busy)
			}
		}
	})
}

// TestOthersPassWhoIsBeyondHisPart: two floods that are held back leave the turn to a third tenant in the same Next, and
// are never waited for.
func TestOthersPassWhoIsBeyondHisPart(t *testing.T) {
	q := New[int](Config{MaxSkips: 2})
	for i := range 40 {
		q.Push(&item{Tenant: fmt.Sprint("flood", i%2), Cost: 0.01, Work: 1}, t0, dice(), nil)
	}
	for range 20 {
		q.Push(&item{Tenant: "light", Cost: 1, Work: 1}, t0, dice(), nil)
		tries := 0
		it := q.Next(t0, func(it *item) Answer {
			if tries++; it.Tenant == "light" {
				return Placed
			}
			return Beyond
		})
		if it == nil || it.Tenant != "light" || tries > 3 {
			t.Fatalf("after %d tries: %+v", tries, it)
		}
	}
}

func TestAskingWhoIsAGuestAllocatesNothing(t *testing.T) {
	q := New[int](Config{})
	for _, who := range []string{"a", "b"} {
		q.Pass(&item{Tenant: who, Cost: 1, Work: 1}, t0)
	}
	if n := testing.AllocsPerRun(100, func() { q.Guest("a", spec.Batch, t0); q.lines[0].ask("b", t0); q.lines[0].ask("a", t0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNobodyIsAGuestForALessUrgentClass: interactive requests have what they need before any batch request has, and batch
// requests stand back while there are interactive ones.
func TestNobodyIsAGuestForALessUrgentClass(t *testing.T) {
	q := New[int](Config{})
	soon := &item{Tenant: "soon", Class: spec.Interactive, Cost: 9, Work: 1}
	q.Pass(soon, t0)
	q.Pass(&item{Tenant: "any time", Class: spec.Batch, Cost: 1, Work: 1}, t0)
	if q.Guest("soon", spec.Interactive, t0) {
		t.Error("who has more than half is a guest for the sake of a batch request")
	}
	if !q.Guest("soon", spec.Batch, t0) {
		t.Error("what it asks for in the same class is not a guest's")
	}
	for c, want := range map[spec.Class]bool{spec.Interactive: false, spec.Standard: true, spec.Batch: true} {
		if q.Yields(c, t0) != want {
			t.Errorf("class %s stands back: %v", c, !want)
		}
	}
	q.Settle(soon, 9)
	for after, want := range map[time.Duration]bool{lately - 1: true, lately: false} {
		if q.Yields(spec.Batch, t0.Add(after)) != want {
			t.Errorf("%v after the last interactive request batch stands back: %v", after, !want)
		}
	}
}

// TestWhoIsRefusedMakesNobodyAGuest: room that is kept for who is turned away at the door is of use to nobody.
func TestWhoIsRefusedMakesNobodyAGuest(t *testing.T) {
	q := New[int](Config{MaxItems: 1})
	q.Push(&item{Tenant: "first", Cost: 1, Work: 1}, t0, dice(), nil)
	q.Next(t0, take)
	now := t0.Add(lately)
	q.Push(&item{Tenant: "first", Cost: 1, Work: 1}, now, dice(), nil)
	if r := q.Push(&item{Tenant: "late", Cost: 1, Work: 1}, now, dice(), nil); r == Accepted {
		t.Fatal("there was room")
	}
	if q.Guest("first", spec.Interactive, now) {
		t.Error("it is a guest for the sake of one that was refused")
	}
}
