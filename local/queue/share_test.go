package queue

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestWhoHasMoreThanItsPartOfWhatRuns(t *testing.T) {
	q := New[int](Config{})
	if s := q.Standing("a", spec.Standard); s != Alone {
		t.Fatalf("in an empty queue it is %d", s)
	}
	run := func(tenant string, c spec.Class) *item {
		it := &item{Tenant: tenant, Class: c, Cost: 1}
		q.Pass(it, t0)
		return it
	}
	for range 9 {
		run("flood", spec.Standard)
	}
	if s := q.Standing("flood", spec.Standard); s != Alone {
		t.Errorf("with nobody else a flood is %d", s)
	}
	light := run("light", spec.Interactive)
	if f, l := q.Standing("flood", spec.Standard), q.Standing("light", spec.Interactive); f != Over || l != Under {
		t.Errorf("of ten that run the flood has nine and is %d, the light one is %d", f, l)
	}
	q.Settle(light, 1)
	if s := q.Standing("flood", spec.Standard); s != Alone {
		t.Errorf("the light one is gone, and the flood is %d", s)
	}
	if s := q.Standing("newcomer", spec.Batch); s != Under {
		t.Errorf("who has nothing yet is %d", s)
	}
}

func TestRivalsAreOthersThatWait(t *testing.T) {
	q := New[int](Config{})
	a := &item{Tenant: "a", Class: spec.Standard}
	q.Push(a, t0, dice(), nil)
	if q.Rivals("a", spec.Standard) || !q.Rivals("b", spec.Standard) || !q.Rivals("a", spec.Batch) {
		t.Error("a waits alone, and that is not what is said")
	}
	q.Push(&item{Tenant: "b", Class: spec.Batch}, t0, dice(), nil)
	if !q.Rivals("a", spec.Standard) {
		t.Error("b is no rival")
	}
}

// TestStandingCountsWhoIsActive compares the count of tenants that wait or run with the lanes themselves.
func TestStandingCountsWhoIsActive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](Config{MaxTenants: 3})
		var running []*item
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			it := &item{Tenant: rapid.StringMatching("[a-e]").Draw(t, "who"), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")), Cost: 1}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.Push(it, t0, dice(), nil)
			case 1:
				q.Pass(it, t0)
				running = append(running, it)
			case 2:
				if it := q.Next(t0, take); it != nil {
					running = append(running, it)
				}
			case 3:
				if len(running) > 0 {
					q.Settle(running[0], 1)
					running = running[1:]
				}
			}
			for c := range q.lines {
				l := &q.lines[c]
				resting := 0
				for _, ln := range l.lanes {
					if ln.resting {
						resting++
					}
				}
				if resting != l.rested {
					t.Fatalf("%d lanes rest, %d are counted", resting, l.rested)
				}
			}
		}
	})
}
