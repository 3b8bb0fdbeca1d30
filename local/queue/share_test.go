package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
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

func TestTenantOverItsShareIsReported(t *testing.T) {
	q, now := New[int](Config{}), testStart
	enter := func(tenant string, c spec.Class, cost float64) *testItem {
		it := &testItem{Tenant: tenant, Class: c, Cost: cost, Work: 100}
		q.RecordDirectEntry(it, now)
		return it
	}
	push := func(tenant string, n int, work int64) {
		for range n {
			if r := q.Push(&testItem{Tenant: tenant, Cost: 0.01, Work: work}, now, newTestRNG(), nil); r != Accepted {
				t.Fatal(r)
			}
		}
	}
	checkOverShare := func(what, tenant string, want bool) {
		t.Helper()
		if q.JudgeShare(tenant, spec.Interactive, now).OverShare != want {
			t.Errorf("%s: %s is over its share: %v", what, tenant, !want)
		}
	}
	large := enter("flood", spec.Interactive, 3)
	push("flood", 5, 100)
	checkOverShare("no other tenant arrived yet", "flood", false)
	small := []*testItem{enter("light", spec.Interactive, 0.5), enter("light", spec.Interactive, 0.5)}
	checkOverShare("one large against two small ones", "flood", true)
	checkOverShare("it runs less than its part", "light", false)
	push("other", 5, 100)
	checkOverShare("a third tenant waits and runs nothing", "other", false)
	push("light", 50, 100)
	checkOverShare("others wait longer than it does", "flood", false)
	q.ExpireItems(now, func(*testItem) {})
	for _, it := range small {
		q.SettleItem(it, it.Cost)
	}
	q.SettleItem(large, 3)
	checkOverShare("it runs nothing", "flood", false)
}

// TestOverShareNeedsRecentOthers: a lone tenant may use the whole zone again soon after the others have left.
func TestOverShareNeedsRecentOthers(t *testing.T) {
	q := New[int](Config{})
	light := &testItem{Tenant: "light", Cost: 0.1, Work: 1}
	q.RecordDirectEntry(light, testStart)
	q.RecordDirectEntry(&testItem{Tenant: "flood", Cost: 1, Work: 1}, testStart)
	q.SettleItem(light, 0.1)
	for after, want := range map[time.Duration]bool{0: true, recentArrivalSpan - 1: true, recentArrivalSpan: false, time.Hour: false} {
		if got := q.JudgeShare("flood", spec.Interactive, testStart.Add(after)).OverShare; got != want {
			t.Errorf("%v after the other's last request over its share: %v", after, got)
		}
	}
}

// TestSomeTenantIsAlwaysWithinShare: in any state at least one tenant is within its share, so that a zone is never
// idle because all of its tenants are held back.
func TestSomeTenantIsAlwaysWithinShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := New[int](Config{}), testStart
		var items []*testItem
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			it := &testItem{
				Tenant: fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "tenant")), Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")),
				Cost: rapid.Float64Range(1e-6, 10).Draw(t, "cost"), Work: rapid.Int64Range(1, 1e6).Draw(t, "work"),
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.RecordDirectEntry(it, now)
				items = append(items, it)
			case 1:
				q.Push(it, now, newTestRNG(), nil)
			case 2:
				if it := q.PlaceNext(now, placeAny); it != nil {
					items = append(items, it)
				}
			case 3:
				if len(items) > 0 {
					q.SettleItem(items[0], it.Cost)
					items = items[1:]
				}
			}
			there, overShare := map[string]bool{}, 0
			for c := range q.classes {
				for name, ln := range q.classes[c].tenants {
					if !ln.isResting {
						there[name] = true
					}
				}
			}
			for name := range there {
				if q.JudgeShare(name, spec.Batch, now).OverShare {
					overShare++
				}
			}
			if len(there) > 1 && overShare == len(there) {
				t.Fatalf("all %d tenants are over their share", overShare)
			}
		}
		for _, it := range items {
			q.SettleItem(it, 0)
		}
		for c := range q.classes {
			if q.classes[c].busySeconds != 0 {
				t.Fatalf("nothing runs and %v s are busy", q.classes[c].busySeconds)
			}
		}
	})
}

// TestOthersPassTenantOverFairShare: two floods that are held back pass their turn to a third tenant in the same
// PlaceNext, and never block the queue.
func TestOthersPassTenantOverFairShare(t *testing.T) {
	q := New[int](Config{MaxSkips: 2})
	for i := range 40 {
		q.Push(&testItem{Tenant: fmt.Sprint("flood", i%2), Cost: 0.01, Work: 1}, testStart, newTestRNG(), nil)
	}
	for range 20 {
		q.Push(&testItem{Tenant: "light", Cost: 1, Work: 1}, testStart, newTestRNG(), nil)
		tries := 0
		it := q.PlaceNext(testStart, func(it *testItem) TryResult {
			if tries++; it.Tenant == "light" {
				return Placed
			}
			return OverFairShare
		})
		if it == nil || it.Tenant != "light" || tries > 3 {
			t.Fatalf("after %d tries: %+v", tries, it)
		}
	}
}

func TestJudgeShareAllocatesNothing(t *testing.T) {
	q := New[int](Config{})
	for _, who := range []string{"a", "b"} {
		q.RecordDirectEntry(&testItem{Tenant: who, Cost: 1, Work: 1}, testStart)
	}
	if n := testing.AllocsPerRun(100, func() {
		q.JudgeShare("a", spec.Batch, testStart)
		q.classes[0].arrivals.recordArrival("b", testStart)
		q.classes[0].arrivals.recordArrival("a", testStart)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLessUrgentClassNeverMakesTenantOverShare: batch requests do not reduce the share of interactive ones, and yield
// while those are present.
func TestLessUrgentClassNeverMakesTenantOverShare(t *testing.T) {
	q := New[int](Config{})
	soon := &testItem{Tenant: "soon", Class: spec.Interactive, Cost: 9, Work: 1}
	q.RecordDirectEntry(soon, testStart)
	q.RecordDirectEntry(&testItem{Tenant: "any time", Class: spec.Batch, Cost: 1, Work: 1}, testStart)
	if q.JudgeShare("soon", spec.Interactive, testStart).OverShare {
		t.Error("a batch request puts an interactive tenant over its share")
	}
	if !q.JudgeShare("soon", spec.Batch, testStart).OverShare {
		t.Error("the tenant is not over its share in the class of the other tenant")
	}
	for c, want := range map[spec.Class]bool{spec.Interactive: false, spec.Standard: true, spec.Batch: true} {
		if q.JudgeShare("", c, testStart).YieldsToUrgent != want {
			t.Errorf("class %s yields: %v", c, !want)
		}
	}
	q.SettleItem(soon, 9)
	for after, want := range map[time.Duration]bool{recentArrivalSpan - 1: true, recentArrivalSpan: false} {
		if q.JudgeShare("", spec.Batch, testStart.Add(after)).YieldsToUrgent != want {
			t.Errorf("%v after the last interactive request batch yields: %v", after, !want)
		}
	}
}

// TestRefusedRequestsDoNotCountAsOthers: room that is kept free is of no use to a refused request.
func TestRefusedRequestsDoNotCountAsOthers(t *testing.T) {
	q := New[int](Config{MaxItems: 1})
	q.Push(&testItem{Tenant: "first", Cost: 1, Work: 1}, testStart, newTestRNG(), nil)
	q.PlaceNext(testStart, placeAny)
	now := testStart.Add(recentArrivalSpan)
	q.Push(&testItem{Tenant: "first", Cost: 1, Work: 1}, now, newTestRNG(), nil)
	if r := q.Push(&testItem{Tenant: "late", Cost: 1, Work: 1}, now, newTestRNG(), nil); r == Accepted {
		t.Fatal("there was room")
	}
	if q.JudgeShare("first", spec.Interactive, now).OverShare {
		t.Error("a refused request puts the tenant over its share")
	}
}
