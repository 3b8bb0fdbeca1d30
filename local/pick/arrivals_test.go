package pick

import (
	"testing"
)

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
