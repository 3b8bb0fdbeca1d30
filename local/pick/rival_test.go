package pick

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// warmth is a fleet of A100s that hold the given parts of one prompt of 16 KiB and 4,096 tokens, and the request for it.
func warmth(p Policy, parts ...float64) (*View, *Ledger, *Query) {
	v, l := fleet(len(parts), "A100")
	v.Policy = p
	prompt := make([]byte, 16<<10)
	blocks := Blocks(nil, 1, prompt)
	for i, part := range parts {
		n := 0
		for n < len(blocks) && float64(blockEnd(n+1)) <= part*float64(len(prompt)) {
			n++
		}
		v.Index.Insert(int32(i), blocks[:n])
	}
	return v, l, &Query{PromptTokens: 4096, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: time.Minute}
}

// chosen asks a few times and expects one answer.
func chosen(t *testing.T, v *View, q *Query, want int) {
	t.Helper()
	rng := testRNG()
	for range 20 {
		if d, ok := Choose(q, v, t0, rng, nil); !ok || d.Index != want {
			t.Fatalf("%s chose %d (%s), want %d", v.Policy, d.Index, d.Reason, want)
		}
	}
}

// decode has a worker run n sequences past their prefill.
func decode(l *Ledger, worker int32, n int) {
	for range n {
		e := l.Dispatch(worker, 0, 10, 0, t0)
		l.FirstByte(&e, t0)
	}
}

// TestCacheAwareIsSGLangs works the published rule by hand: match of 0.3, then the smallest tree; shortest queue while the
// greatest is more than 64 and 1.5 times over the least.
func TestCacheAwareIsSGLangs(t *testing.T) {
	v, l, q := warmth(CacheAware, 0, 0.25, 0.5)
	chosen(t, v, q, 2)
	decode(l, 2, 64) // 64 - 0 is not over 64
	chosen(t, v, q, 2)
	decode(l, 2, 1) // 65 is
	rng := testRNG()
	for range 20 {
		if d, _ := Choose(q, v, t0, rng, nil); d.Index == 2 {
			t.Fatal("a spread of 65 sequences left the balance as it was")
		}
	}
	decode(l, 0, 140)
	decode(l, 1, 150) // 150 - 65 = 85, and 150 > 97
	chosen(t, v, q, 2)
	decode(l, 2, 40) // 105 to 150: 45 only
	chosen(t, v, q, 2)

	v, l, q = warmth(CacheAware, 0.28, 0.1, 0.2) // nobody holds three tenths: the smallest tree
	chosen(t, v, q, 1)
	decode(l, 1, 20) // whatever its load
	chosen(t, v, q, 1)
	decode(l, 0, 1)
	decode(l, 2, 3)
	chosen(t, v, &Query{PromptTokens: 10, PromptBytes: 40}, 0) // too short to be known: the fewest sequences
}

// TestOverlapCostIsDynamos: worker 0 would prefill 4,096 tokens and holds nothing, worker 1 would prefill 1,024 and holds
// 3,200 tokens. At 16 tokens a block the costs are 256 + 256 and 64 + 200 + 256; at twice the weight 768 and 584.
func TestOverlapCostIsDynamos(t *testing.T) {
	v, l, q := warmth(OverlapCost, 0, 0.75)
	e := l.Dispatch(1, 0, 3200, 0, t0)
	l.FirstByte(&e, t0)
	chosen(t, v, q, 0)
	if a, b := v.costs[0], v.costs[1]; a != 512 || b != 520 {
		t.Fatalf("the costs are %v and %v blocks, want 512 and 520", a, b)
	}
	v.OverlapWeight = 2
	chosen(t, v, q, 1)
	if a, b := v.costs[0], v.costs[1]; a != 768 || b != 584 {
		t.Fatalf("at twice the weight the costs are %v and %v blocks, want 768 and 584", a, b)
	}
}

// TestTemperatureDrawsByCost: of three workers whose costs stand at 0, 1/2 and 1 of their range, each is drawn in
// proportion to exp(-cost/temperature).
func TestTemperatureDrawsByCost(t *testing.T) {
	v, l, _ := warmth(OverlapCost, 0, 0, 0)
	for i, tokens := range []int64{0, 800, 1600} {
		e := l.Dispatch(int32(i), 0, tokens, 0, t0)
		l.FirstByte(&e, t0)
	}
	for _, temperature := range []float64{0.1, 1, 10} {
		v.Temperature = temperature
		rng, got := testRNG(), make([]float64, 3)
		const n = 20_000
		for range n {
			d, _ := Choose(&Query{PromptTokens: 100, OutputTokens: 10}, v, t0, rng, nil)
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

// TestScoreBlendIsLLMDs works 3:2:2 by hand: worker 0 holds half of the prompt and has 4 prompts before it, worker 1 none
// and 1, worker 2 none and 4 with a full cache. Queues of 4, 1 and 4 score 0, 1 and 0.
func TestScoreBlendIsLLMDs(t *testing.T) {
	v, l, q := warmth(ScoreBlend, 0.5, 0, 0)
	for i, n := range []int{4, 1, 4} {
		change(v, i, func(w *Worker) { w.KVTotal = 100_000 })
		for range n {
			l.Dispatch(int32(i), 1, 0, 0, t0)
		}
	}
	l.Dispatch(0, 0, 10_000, 0, t0) // one more before worker 0: 5, 1 and 4
	chosen(t, v, q, 1)
	for i, want := range []float64{3*0.5 + 2 + 2*0.1, 3, 3 + 2*0.75} {
		if got := v.costs[i]; math.Abs(got-want) > 1e-3 {
			t.Errorf("worker %d lacks %v, want %v", i, got, want)
		}
	}
	v, _, q = warmth(ScoreBlend, 0.5, 0, 0.25)
	chosen(t, v, q, 0)
}

// TestRivalRulesHold: whatever the fleet's state, each rule's choice is the least of what it says it goes by, and equal
// workers whose order differs are chosen alike.
func TestRivalRulesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]Policy{CacheAware, OverlapCost, ScoreBlend, LMetric, StickyUntilSaturated}).Draw(t, "policy")
		parts := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 8).Draw(t, "parts")
		v, l, q := warmth(p, parts...)
		for i := range parts {
			for range rapid.IntRange(0, 100).Draw(t, "sequences") {
				e := l.Dispatch(int32(i), rapid.Int64Range(0, 50).Draw(t, "prefill"), 10, 0, t0)
				if rapid.Bool().Draw(t, "begun") {
					l.FirstByte(&e, t0)
				}
			}
		}
		d, ok := Choose(q, v, t0, testRNG(), nil)
		if !ok {
			return
		}
		least := math.Inf(1)
		for _, at := range v.cands {
			least = min(least, v.costs[at])
		}
		if got := v.costs[d.Index]; got > least*1.02+0.001 {
			t.Fatalf("%s chose a cost of %v where %v was to be had", p, got, least)
		}
	})
}
