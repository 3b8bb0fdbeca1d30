package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
)

// TestPoolsAreRespected, as a property of every policy: a request of a pool goes to that pool's workers or, if it may
// overflow and they have no room, to workers in no pool; any other request goes to workers in no pool. No request is
// refused while a worker that may take it has room.
func TestPoolsAreRespected(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "workers")
		v, l := newTestFleet(n, "H100", "L4")
		v.Policy = Policy(rapid.IntRange(0, len(policyRules)-1).Draw(rt, "policy"))
		q := &PlacementQuery{
			PromptTokens: 100, OutputTokens: 10, Pools: rapid.SampledFrom([]uint64{0, 1, 2, 1 << 63}).Draw(rt, "pools"),
			Overflow: rapid.Bool().Draw(rt, "overflow"),
		}
		room := map[string]bool{} // by whether the worker is in the request's pool or in none
		mine, unpooled := false, false
		for i := range n {
			pools := rapid.SampledFrom([]uint64{0, 0, 1, 2, 3, 1 << 63}).Draw(rt, "of")
			full := rapid.Bool().Draw(rt, "full")
			editWorker(v, i, func(w *WorkerSnapshot) { w.Pools, w.Slots = pools, 1 })
			if full {
				l.DispatchRequest(v.Workers[i].ID, 10, 10, v.Workers[i].KVTotal, testStart)
			}
			own, free := pools&q.Pools != 0, pools == 0
			mine, unpooled = mine || own, unpooled || free
			if !full && own {
				room["own"] = true
			}
			if !full && free {
				room["free"] = true
			}
		}
		may := q.Pools == 0 && room["free"] || q.Pools != 0 && (room["own"] || q.Overflow && room["free"])
		rec := &explain.Explanation{}
		d, ok := ChooseWorker(q, v, testStart, testRNG(), rec)
		if len(rec.Candidates) < n {
			rt.Fatalf("%d of %d workers are explained", len(rec.Candidates), n)
		}
		if ok != may {
			rt.Fatalf("chosen: %v (%s), may be: %v", ok, d.Reason, may)
		}
		if !ok {
			declared := q.Pools == 0 && unpooled || q.Pools != 0 && (mine || q.Overflow && unpooled)
			if declared != (d.Reason == ReasonBusy) || !declared && d.Reason != ReasonNoPool {
				rt.Fatalf("no worker is chosen (%s), and an allowed worker exists: %v", d.Reason, declared)
			}
			return
		}
		w := &v.Workers[d.Index]
		if !q.AllowsWorker(w) || q.Pools != 0 && w.Pools == 0 && room["own"] {
			rt.Fatalf("a request of pools %b went to a worker of %b, room %v", q.Pools, w.Pools, room)
		}
	})
}

// TestRequestBlockedByPoolIsHeldBack: only such a request is held back, so that others may overtake it in the queue.
func TestRequestBlockedByPoolIsHeldBack(t *testing.T) {
	v, l := newTestFleet(2, "H100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Pools, w.Slots = 1, 1 })
	editWorker(v, 1, func(w *WorkerSnapshot) { w.Slots = 1 })
	l.DispatchRequest(v.Workers[0].ID, 10, 10, 1000, testStart)
	q := &PlacementQuery{PromptTokens: 10, OutputTokens: 1, Pools: 1}
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok || !IsHeldBack(v) {
		t.Error("a request whose pool is full, while others have room, is not held back")
	}
	l.DispatchRequest(v.Workers[1].ID, 10, 10, 1000, testStart)
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok || IsHeldBack(v) {
		t.Error("a request is held back while no worker has room")
	}
}

func TestPoolsAllocateNothing(t *testing.T) {
	v, q := newBenchFleet(256)
	for i := range v.Workers {
		editWorker(v, i, func(w *WorkerSnapshot) { w.Pools = uint64(i % 3) })
	}
	q.Pools, q.Overflow = 1, true
	rng := testRNG()
	if n := testing.AllocsPerRun(200, func() { ChooseWorker(q, v, testStart.Add(time.Millisecond), rng, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
