package pick

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
)

// TestOnlyAllowedWorkersAreChosen, as a property of every policy, with and without the search among groups: a request with Only
// goes to one of these workers, and is placed if one of them has room.
func TestOnlyAllowedWorkersAreChosen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 70, 300}).Draw(rt, "workers")
		v, l := newTestFleet(n, "H100", "L4")
		v.Policy = Policy(rapid.IntRange(0, len(policyRules)-1).Draw(rt, "policy"))
		q := &PlacementQuery{PromptTokens: 100, OutputTokens: 10, Only: WorkerSet{}}
		room, blocked := false, false
		for i := range n {
			full, allowed := rapid.Bool().Draw(rt, "full"), rapid.IntRange(0, 9).Draw(rt, "allowed") == 0
			editWorker(v, i, func(w *WorkerSnapshot) { w.Slots = 1 })
			if full {
				l.DispatchRequest(v.Workers[i].ID, 10, 10, v.Workers[i].KVTotal, testStart)
			}
			if allowed {
				q.Only = q.Only.AddWorker(v.Workers[i].ID)
			}
			room, blocked = room || allowed && !full, blocked || !allowed && !full
		}
		var rec *explain.Explanation
		if rapid.Bool().Draw(rt, "explained") {
			rec = &explain.Explanation{}
		}
		d, ok := ChooseWorker(q, v, testStart, testRNG(), rec)
		if ok != room {
			rt.Fatalf("chosen: %v (%s), an allowed worker has room: %v", ok, d.Reason, room)
		}
		if ok && !q.Only.HasWorker(d.ID) {
			rt.Fatalf("worker %d was chosen, which is not allowed", d.ID)
		}
		if !ok && blocked && !IsHeldBack(v) {
			rt.Fatal("a request that only its subset blocks is not held back, so others may not overtake it")
		}
	})
}

func TestWorkerSetHasOnlyWhatWasAdded(t *testing.T) {
	var s WorkerSet
	for _, id := range []int32{0, 63, 64, 200} {
		s = s.AddWorker(id)
	}
	for id := int32(-2); id < 300; id++ {
		if want := id == 0 || id == 63 || id == 64 || id == 200; s.HasWorker(id) != want {
			t.Errorf("worker %d in the set: %v", id, !want)
		}
	}
}
