package pick

import (
	"testing"
	"time"
)

// TestPrefixHolderIsChosenDespiteItsBacklog: a worker with a backlog over the target is a candidate only for a prompt
// of which it holds so much that recomputing it on another worker would take as long.
func TestPrefixHolderIsChosenDespiteItsBacklog(t *testing.T) {
	v, l, q := newCachedFleet(Predictive, 0, 1)
	q.MaxWait = time.Second
	over := int64(v.Workers[1].Rates.PrefillRate) + 2000 // tokens: a second and a little
	l.DispatchRequest(0, over, over, 0, testStart)
	l.DispatchRequest(1, over, over, 0, testStart)
	expectChoice(t, v, q, 1)
	q.Blocks = nil
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok {
		t.Fatalf("chose %d though no worker holds the prompt and all backlogs are over the target", d.Index)
	}
}

// TestLongPromptAvoidsLargeBatch: of two workers with the same backlog and the same KV cache in use, a long prompt goes
// to the one where it stalls two answers, and not to the one where it stalls forty.
func TestLongPromptAvoidsLargeBatch(t *testing.T) {
	v, l := newTestFleet(2, "A100")
	for i, n := range []int64{40, 2} {
		for range n {
			e := l.DispatchRequest(int32(i), 0, 40_000/n, 0, testStart)
			l.RecordFirstByte(&e, testStart)
		}
	}
	expectChoice(t, v, &PlacementQuery{PromptTokens: 8000, OutputTokens: 1}, 1)
	// Of two workers with as many answers, the one with shorter contexts has shorter steps for the answer itself.
	v, l = newTestFleet(2, "A100")
	for i, kv := range []int64{5_000, 500} {
		for range 20 {
			e := l.DispatchRequest(int32(i), 0, kv, 0, testStart)
			l.RecordFirstByte(&e, testStart)
		}
	}
	expectChoice(t, v, &PlacementQuery{PromptTokens: 100, OutputTokens: 300}, 1)
}

// TestLongColdPromptGoesWhereFewArrive: two workers are idle; one of them holds the prefixes of many conversations.
func TestLongColdPromptGoesWhereFewArrive(t *testing.T) {
	v, _ := newTestFleet(2, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.QueueingFactor = 0.5 })
	editWorker(v, 1, func(w *WorkerSnapshot) { w.QueueingFactor = 0.1 })
	for range 50 {
		got, ok := ChooseWorker(&PlacementQuery{PromptTokens: 100_000, OutputTokens: 300}, v, testStart, testRNG(), nil)
		if !ok || got.Index != 1 {
			t.Fatalf("a prompt of 100,000 tokens went to worker %d, where most later requests would wait for it", got.Index)
		}
	}
}
