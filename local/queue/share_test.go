package queue

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestShareStateFollowsRunningRequests(t *testing.T) {
	q := New[int](Config{})
	if s := q.JudgeShare("a", spec.Standard, testStart).Running; s != ShareAlone {
		t.Fatalf("in an empty queue it is %d", s)
	}
	run := func(tenant string, c spec.Class) *testItem {
		it := &testItem{Tenant: tenant, Class: c, Cost: 1}
		q.RecordDirectEntry(it, testStart)
		return it
	}
	for range 9 {
		run("flood", spec.Standard)
	}
	if s := q.JudgeShare("flood", spec.Standard, testStart).Running; s != ShareAlone {
		t.Errorf("without other tenants a flood is %d", s)
	}
	light := run("light", spec.Interactive)
	if f, l := q.JudgeShare("flood", spec.Standard, testStart).Running, q.JudgeShare("light", spec.Interactive, testStart).Running; f != ShareOver || l != ShareUnder {
		t.Errorf("of ten that run the flood has nine and is %d, the light one is %d", f, l)
	}
	q.SettleItem(light, 1)
	if s := q.JudgeShare("flood", spec.Standard, testStart).Running; s != ShareAlone {
		t.Errorf("the light one is gone, and the flood is %d", s)
	}
	if s := q.JudgeShare("newcomer", spec.Batch, testStart).Running; s != ShareUnder {
		t.Errorf("a tenant without requests is %d", s)
	}
}

func TestOthersWaitingExcludesOwnTenant(t *testing.T) {
	q := New[int](Config{})
	a := &testItem{Tenant: "a", Class: spec.Standard}
	q.Push(a, testStart, newTestRNG(), nil)
	if q.OthersWaiting("a", spec.Standard) || !q.OthersWaiting("b", spec.Standard) || !q.OthersWaiting("a", spec.Batch) {
		t.Error("OthersWaiting is wrong while only a waits")
	}
	q.Push(&testItem{Tenant: "b", Class: spec.Batch}, testStart, newTestRNG(), nil)
	if !q.OthersWaiting("a", spec.Standard) {
		t.Error("b does not count as another tenant")
	}
}

// TestShareStateCountsActiveTenants compares the number of tenants that wait or run with the tenant queues
// themselves.
func TestShareStateCountsActiveTenants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](Config{MaxTenants: 3})
		var running []*testItem
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			it := &testItem{Tenant: rapid.StringMatching("[a-e]").Draw(t, "who"), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")), Cost: 1}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.Push(it, testStart, newTestRNG(), nil)
			case 1:
				q.RecordDirectEntry(it, testStart)
				running = append(running, it)
			case 2:
				if it := q.PlaceNext(testStart, placeAny); it != nil {
					running = append(running, it)
				}
			case 3:
				if len(running) > 0 {
					q.SettleItem(running[0], 1)
					running = running[1:]
				}
			}
			for c := range q.classes {
				l := &q.classes[c]
				resting := 0
				for _, ln := range l.tenants {
					if ln.isResting {
						resting++
					}
				}
				if resting != l.resting.count {
					t.Fatalf("%d tenants rest, %d are counted", resting, l.resting.count)
				}
			}
		}
	})
}
