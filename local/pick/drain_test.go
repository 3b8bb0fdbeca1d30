package pick

import "testing"

// TestGradualDrain: a worker keeps the share of requests that its drain leaves, under each policy that spreads
// requests, even where it is preferred for its lower load. It keeps all of them while no other worker is up.
func TestGradualDrain(t *testing.T) {
	for _, policy := range []Policy{Predictive, RoundRobin} {
		v, _ := newTestFleet(2, "H100")
		v.Policy = policy
		q := &PlacementQuery{PromptTokens: 500, OutputTokens: 50}
		rng := testRNG()
		count := func() (n int) {
			for range 4000 {
				if w, ok := ChooseWorker(q, v, testStart, rng, nil); ok && w.Index == 0 {
					n++
				}
			}
			return n
		}
		usual := count()
		for _, leaving := range []float64{0.25, 0.5, 0.75} {
			editWorker(v, 0, func(w *WorkerSnapshot) { w.DrainPart = leaving })
			if n := count(); float64(n) < (1-leaving-0.05)*float64(usual) || float64(n) > (1-leaving+0.05)*float64(usual) {
				t.Errorf("policy %v: %d of %d choices stay on the worker with a drain part of %v", policy, n, usual, leaving)
			}
		}
		editWorker(v, 0, func(w *WorkerSnapshot) { w.Weight, w.DrainPart = 100, 0.5 })
		if n := count(); n < 900 || n > 1100 {
			t.Errorf("policy %v: %d of 4000 choices stay on a preferred worker at half-time", policy, n)
		}
		editWorker(v, 1, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
		if n := count(); n != 4000 {
			t.Errorf("policy %v: alone, the worker gets %d of 4000 choices", policy, n)
		}
	}
}

// TestGradualDrainOfFullWorkers: a draining worker runs fewer concurrent requests.
func TestGradualDrainOfFullWorkers(t *testing.T) {
	v, l := newTestFleet(1, "H100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Slots, w.DrainPart = 8, 0.5 })
	n := 0
	for ; n < 9; n++ {
		got, ok := ChooseWorker(&PlacementQuery{PromptTokens: 10, OutputTokens: 10}, v, testStart, testRNG(), nil)
		if !ok {
			break
		}
		l.DispatchRequest(got.ID, 10, 20, v.Workers[0].KVTotal, testStart)
	}
	if n != 4 {
		t.Errorf("it runs %d requests at once, want 4 of 8", n)
	}
}
