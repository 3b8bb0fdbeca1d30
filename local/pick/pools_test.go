package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
)

// TestPoolsHold, as a property of every policy: a request of a pool goes to that pool's workers or, if it may overflow and
// they have no room, to those of no pool; any other request goes to those of no pool. Nobody is refused while a worker
// that may take it has room.
func TestPoolsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "workers")
		v, l := fleet(n, "H100", "L4")
		v.Policy = Policy(rapid.IntRange(0, len(rules)-1).Draw(rt, "policy"))
		q := &Query{
			PromptTokens: 100, OutputTokens: 10, Pools: rapid.SampledFrom([]uint64{0, 1, 2, 1 << 63}).Draw(rt, "pools"),
			Overflow: rapid.Bool().Draw(rt, "overflow"),
		}
		room := map[string]bool{} // by whether it is the request's own or of no pool
		mine, anybody := false, false
		for i := range n {
			pools := rapid.SampledFrom([]uint64{0, 0, 1, 2, 3, 1 << 63}).Draw(rt, "of")
			full := rapid.Bool().Draw(rt, "full")
			change(v, i, func(w *Worker) { w.Pools, w.Slots = pools, 1 })
			if full {
				l.Dispatch(v.Workers[i].ID, 10, 10, v.Workers[i].KVTotal, t0)
			}
			own, free := pools&q.Pools != 0, pools == 0
			mine, anybody = mine || own, anybody || free
			if !full && own {
				room["own"] = true
			}
			if !full && free {
				room["free"] = true
			}
		}
		may := q.Pools == 0 && room["free"] || q.Pools != 0 && (room["own"] || q.Overflow && room["free"])
		rec := &explain.Record{}
		d, ok := Choose(q, v, t0, testRNG(), rec)
		if len(rec.Candidates) < n {
			rt.Fatalf("%d of %d workers are explained", len(rec.Candidates), n)
		}
		if ok != may {
			rt.Fatalf("chosen: %v (%s), may be: %v", ok, d.Reason, may)
		}
		if !ok {
			declared := q.Pools == 0 && anybody || q.Pools != 0 && (mine || q.Overflow && anybody)
			if declared != (d.Reason == ReasonBusy) || !declared && d.Reason != ReasonNoPool {
				rt.Fatalf("nobody is chosen for %s, and a worker is declared: %v", d.Reason, declared)
			}
			return
		}
		w := &v.Workers[d.Index]
		if !q.For(w) || q.Pools != 0 && w.Pools == 0 && room["own"] {
			rt.Fatalf("a request of pools %b went to a worker of %b, room %v", q.Pools, w.Pools, room)
		}
	})
}

// TestWhoIsBlockedByAPoolIsHeldBack and nobody else: others may pass it in the queue.
func TestWhoIsBlockedByAPoolIsHeldBack(t *testing.T) {
	v, l := fleet(2, "H100")
	change(v, 0, func(w *Worker) { w.Pools, w.Slots = 1, 1 })
	change(v, 1, func(w *Worker) { w.Slots = 1 })
	l.Dispatch(v.Workers[0].ID, 10, 10, 1000, t0)
	q := &Query{PromptTokens: 10, OutputTokens: 1, Pools: 1}
	if _, ok := Choose(q, v, t0, testRNG(), nil); ok || !HeldBack(v) {
		t.Error("a request whose pool is full, while others have room, is not held back")
	}
	l.Dispatch(v.Workers[1].ID, 10, 10, 1000, t0)
	if _, ok := Choose(q, v, t0, testRNG(), nil); ok || HeldBack(v) {
		t.Error("a request is held back while nobody has room")
	}
}

func TestPoolsAllocateNothing(t *testing.T) {
	v, q := benchFleet(256)
	for i := range v.Workers {
		change(v, i, func(w *Worker) { w.Pools = uint64(i % 3) })
	}
	q.Pools, q.Overflow = 1, true
	rng := testRNG()
	if n := testing.AllocsPerRun(200, func() { Choose(q, v, t0.Add(time.Millisecond), rng, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
