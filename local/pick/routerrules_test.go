package pick

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
)

// newCachedFleet returns a fleet of A100s that hold the given parts of one prompt of 16 KiB and 4,096 tokens, and the
// request for it.
func newCachedFleet(p Policy, parts ...float64) (*WorkerView, *inflight.Ledger, *PlacementQuery) {
	v, l := newTestFleet(len(parts), "A100")
	v.Policy = p
	prompt := make([]byte, 16<<10)
	blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
	for i, part := range parts {
		n := 0
		for n < len(blocks) && float64(blockhash.BytesCovered(n+1)) <= part*float64(len(prompt)) {
			n++
		}
		v.Index.InsertPrompt(int32(i), blocks[:n])
	}
	return v, l, &PlacementQuery{PromptTokens: 4096, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: time.Minute}
}

// expectChoice chooses a few times and expects the same worker.
func expectChoice(t *testing.T, v *WorkerView, q *PlacementQuery, want int) {
	t.Helper()
	rng := testRNG()
	for range 20 {
		if d, ok := ChooseWorker(q, v, testStart, rng, nil); !ok || d.Index != want {
			t.Fatalf("%s chose %d (%s), want %d", v.Policy, d.Index, d.Reason, want)
		}
	}
}

// startDecoding puts n sequences past their prefill on a worker.
func startDecoding(l *inflight.Ledger, worker int32, n int) {
	for range n {
		e := l.DispatchRequest(worker, 0, 10, 0, testStart)
		l.RecordFirstByte(&e, testStart)
	}
}

// TestCacheAwareFollowsSGLangRule checks the published rule: match of 0.3, then the smallest tree; shortest queue while
// the greatest is more than 64 and 1.5 times over the least.
func TestCacheAwareFollowsSGLangRule(t *testing.T) {
	v, l, q := newCachedFleet(CacheAware, 0, 0.25, 0.5)
	expectChoice(t, v, q, 2)
	startDecoding(l, 2, 64) // 64 - 0 is not over 64
	expectChoice(t, v, q, 2)
	startDecoding(l, 2, 1) // 65 is
	rng := testRNG()
	for range 20 {
		if d, _ := ChooseWorker(q, v, testStart, rng, nil); d.Index == 2 {
			t.Fatal("a spread of 65 sequences left the balance as it was")
		}
	}
	startDecoding(l, 0, 140)
	startDecoding(l, 1, 150) // 150 - 65 = 85, and 150 > 97
	expectChoice(t, v, q, 2)
	startDecoding(l, 2, 40) // 105 to 150: 45 only
	expectChoice(t, v, q, 2)

	v, l, q = newCachedFleet(CacheAware, 0.28, 0.1, 0.2) // no worker holds three tenths: the smallest tree
	expectChoice(t, v, q, 1)
	startDecoding(l, 1, 20) // independent of its load
	expectChoice(t, v, q, 1)
	startDecoding(l, 0, 1)
	startDecoding(l, 2, 3)
	expectChoice(t, v, &PlacementQuery{PromptTokens: 10, PromptBytes: 40}, 0) // too short to be matched: the fewest sequences
}

// TestOverlapCostFollowsDynamoRule: worker 0 would prefill 4,096 tokens and holds nothing, worker 1 would prefill 1,024 and holds
// 3,200 tokens. At 16 tokens a block the costs are 256 + 256 and 64 + 200 + 256; at twice the weight 768 and 584.
func TestOverlapCostFollowsDynamoRule(t *testing.T) {
	v, l, q := newCachedFleet(OverlapCost, 0, 0.75)
	e := l.DispatchRequest(1, 0, 3200, 0, testStart)
	l.RecordFirstByte(&e, testStart)
	expectChoice(t, v, q, 0)
	if a, b := v.placement.costs[0], v.placement.costs[1]; a != 512 || b != 520 {
		t.Fatalf("the costs are %v and %v blocks, want 512 and 520", a, b)
	}
	v.OverlapWeight = 2
	expectChoice(t, v, q, 1)
	if a, b := v.placement.costs[0], v.placement.costs[1]; a != 768 || b != 584 {
		t.Fatalf("at twice the weight the costs are %v and %v blocks, want 768 and 584", a, b)
	}
}

// TestTemperatureDrawsByCost: of three workers whose costs are at 0, 1/2 and 1 of their range, each is drawn in
// proportion to exp(-cost/temperature).
func TestTemperatureDrawsByCost(t *testing.T) {
	v, l, _ := newCachedFleet(OverlapCost, 0, 0, 0)
	for i, tokens := range []int64{0, 800, 1600} {
		e := l.DispatchRequest(int32(i), 0, tokens, 0, testStart)
		l.RecordFirstByte(&e, testStart)
	}
	for _, temperature := range []float64{0.1, 1, 10} {
		v.Temperature = temperature
		rng, got := testRNG(), make([]float64, 3)
		const n = 20_000
		for range n {
			d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 100, OutputTokens: 10}, v, testStart, rng, nil)
			got[d.Index] += 1.0 / n
		}
		sum := 1 + math.Exp(-0.5/temperature) + math.Exp(-1/temperature)
		for i := range got {
			if want := math.Exp(-float64(i)/2/temperature) / sum; math.Abs(got[i]-want) > 0.02 {
				t.Errorf("at temperature %v worker %d is drawn %.3f of the time, want %.3f", temperature, i, got[i], want)
			}
		}
	}
}

// TestScoreBlendFollowsLLMDRule checks 3:2:2 by hand: worker 0 holds half of the prompt and has 4 prompts before it,
// worker 1 none and 1, worker 2 none and 4 with a full cache. Queues of 4, 1 and 4 score 0, 1 and 0.
func TestScoreBlendFollowsLLMDRule(t *testing.T) {
	v, l, q := newCachedFleet(ScoreBlend, 0.5, 0, 0)
	for i, n := range []int{4, 1, 4} {
		editWorker(v, i, func(w *WorkerSnapshot) { w.KVTotal = 100_000 })
		for range n {
			l.DispatchRequest(int32(i), 1, 0, 0, testStart)
		}
	}
	l.DispatchRequest(0, 0, 10_000, 0, testStart) // one more before worker 0: 5, 1 and 4
	expectChoice(t, v, q, 1)
	for i, want := range []float64{3*0.5 + 2 + 2*0.1, 3, 3 + 2*0.75} {
		if got := v.placement.costs[i]; math.Abs(got-want) > 1e-3 {
			t.Errorf("worker %d lacks %v, want %v", i, got, want)
		}
	}
	v, _, q = newCachedFleet(ScoreBlend, 0.5, 0, 0.25)
	expectChoice(t, v, q, 0)
}

// TestPublishedRulesChooseLowestCost: in any state of the fleet, each rule chooses the least of its own costs, and
// permuting equal workers does not change the choice.
func TestPublishedRulesChooseLowestCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]Policy{CacheAware, OverlapCost, ScoreBlend, LMetric, StickyUntilSaturated}).Draw(t, "policy")
		parts := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 8).Draw(t, "parts")
		v, l, q := newCachedFleet(p, parts...)
		for i := range parts {
			for range rapid.IntRange(0, 100).Draw(t, "sequences") {
				e := l.DispatchRequest(int32(i), rapid.Int64Range(0, 50).Draw(t, "prefill"), 10, 0, testStart)
				if rapid.Bool().Draw(t, "begun") {
					l.RecordFirstByte(&e, testStart)
				}
			}
		}
		d, ok := ChooseWorker(q, v, testStart, testRNG(), nil)
		if !ok {
			return
		}
		least := math.Inf(1)
		for _, at := range v.placement.candidates {
			least = min(least, v.placement.costs[at])
		}
		if got := v.placement.costs[d.Index]; got > least*1.02+0.001 {
			t.Fatalf("%s chose a cost of %v where %v was available", p, got, least)
		}
	})
}
