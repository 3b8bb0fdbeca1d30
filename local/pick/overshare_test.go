package pick

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// newOverShareView returns a view of workers with the rates of their priors.
func newOverShareView(n int) *WorkerView {
	l := inflight.NewLedger()
	ws := make([]WorkerSnapshot, n)
	for i := range ws {
		id, _ := l.AddWorker()
		ws[i] = WorkerSnapshot{ID: id, Name: string(rune('a' + i)), Rates: perfmodel.EstimatePrior("H100", "8b").Rates, KVTotal: 400_000, Slots: 1024}
	}
	return NewWorkerView(ws, l, nil, Predictive)
}

func TestOverShareRequestIsBoundedByPrefillAndBatch(t *testing.T) {
	now := time.Unix(1e9, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	ask := func(v *WorkerView, prompt int64, overShare bool) bool {
		_, ok := ChooseWorker(&PlacementQuery{PromptTokens: prompt, OutputTokens: 100, MaxWait: time.Second, Share: ShareLimits{OverShare: overShare}}, v, now, rng, nil)
		return ok
	}
	for _, c := range []struct {
		what        string
		before, own int64 // prefill in tokens
		seqs        int   // decoding, with 1,000 tokens of context each
		want        bool
	}{
		{"an idle engine takes any prompt", 0, 100_000, 0, true},
		{"two prompts that fit in a step", 100, 150, 0, true},
		{"a prompt behind another", 500, 500, 0, false},
		{"a short prompt behind a long one", 500, 10, 0, false},
		{"a small batch", 0, 500, 30, true},
		{"a batch that lengthens every step", 0, 500, 200, false},
	} {
		v := newOverShareView(1)
		for range c.seqs {
			e := v.Ledger.DispatchRequest(0, 1, 1000, 400_000, now)
			v.Ledger.RecordFirstByte(&e, now)
		}
		if c.before > 0 {
			v.Ledger.DispatchRequest(0, c.before, c.before, 400_000, now)
		}
		if got := ask(v, c.own, true); got != c.want {
			t.Errorf("%s: a request over fair share is admitted: %v", c.what, got)
		}
		if !ask(v, c.own, false) {
			t.Errorf("%s: a request within fair share is not admitted", c.what)
		}
	}
}

// TestOverShareRequestWaitsForPrefillToDrain: by the estimated progress, before the first token of the earlier prompt
// arrives, so that no step is without a prompt.
func TestOverShareRequestWaitsForPrefillToDrain(t *testing.T) {
	now := time.Unix(1e9, 0)
	v := newOverShareView(1)
	v.Ledger.DispatchRequest(0, 4000, 4000, 400_000, now)
	took := time.Duration(4000 / v.Workers[0].Rates.PrefillRate * float64(time.Second))
	q := &PlacementQuery{PromptTokens: overShareMaxPrefill / 2, OutputTokens: 100, MaxWait: time.Second, Share: ShareLimits{OverShare: true}}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {took / 2, false}, {took * 19 / 20, true}, {2 * took, true}} {
		if _, ok := ChooseWorker(q, v, now.Add(c.after), rand.New(rand.NewPCG(1, 1)), nil); ok != c.want {
			t.Errorf("%v after a prompt that takes %v a short request over fair share is admitted: %v", c.after, took, ok)
		}
	}
}

// TestLongOverSharePromptLeavesIdleWorkers: while others wait for their shares, some workers stay without prefill when
// only requests over fair share arrive.
func TestLongOverSharePromptLeavesIdleWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, rng := time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 1))
		n := rapid.IntRange(1, 26).Draw(t, "workers")
		v := newOverShareView(n)
		busy := map[int]bool{}
		for range 3 * n {
			q := &PlacementQuery{PromptTokens: rapid.Int64Range(overShareMaxPrefill+1, 20_000).Draw(t, "prompt"), OutputTokens: 100, MaxWait: time.Second, Share: ShareLimits{OverShare: true}}
			d, ok := ChooseWorker(q, v, now, rng, nil)
			if !ok {
				break
			}
			if busy[d.Index] {
				t.Fatal("two long prompts over fair share are in one engine")
			}
			busy[d.Index] = true
			v.Ledger.DispatchRequest(v.Workers[d.Index].ID, q.PromptTokens, q.PromptTokens, 400_000, now)
		}
		if want := n - int(math.Sqrt(float64(n))/2); len(busy) != want {
			t.Fatalf("long prompts over fair share take %d of %d workers, want %d", len(busy), n, want)
		}
		if _, ok := ChooseWorker(&PlacementQuery{PromptTokens: overShareMaxPrefill, OutputTokens: 100, MaxWait: time.Second, Share: ShareLimits{OverShare: true}}, v, now, rng, nil); ok != (len(busy) < n) {
			t.Fatalf("a short request over fair share is admitted: %v", ok)
		}
	})
}

// TestOverShareRequestIsEventuallyPlaced: a worker with fewer than overShareMinSeqs sequences and no prefill admits a
// request over fair share, for any estimated rates.
func TestOverShareRequestIsEventuallyPlaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := newOverShareView(1)
		w := v.Workers[0]
		rate := rapid.OneOf(rapid.Float64Range(1, 1e6), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, -1}))
		w.Rates = perfmodel.Rates{
			PrefillBase: rate.Draw(t, "base"), PrefillRate: rapid.Float64Range(1, 1e6).Draw(t, "rate"),
			StepBase: rate.Draw(t, "step"), StepSlope: rate.Draw(t, "slope"), StepContext: rate.Draw(t, "context"),
		}
		v.SetWorker(0, w)
		now := time.Unix(1e9, 0)
		for range rapid.IntRange(0, overShareMinSeqs-1).Draw(t, "seqs") {
			e := v.Ledger.DispatchRequest(0, 1, 1000, 400_000, now)
			v.Ledger.RecordFirstByte(&e, now)
		}
		q := &PlacementQuery{PromptTokens: rapid.Int64Range(1, 100_000).Draw(t, "prompt"), OutputTokens: 100, Share: ShareLimits{OverShare: true}}
		if _, ok := ChooseWorker(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); !ok {
			t.Fatal("no room for a request over fair share")
		}
	})
}

func TestPlacingOverShareRequestAllocatesNothing(t *testing.T) {
	v, now := newOverShareView(8), time.Unix(1e9, 0)
	q, rng := &PlacementQuery{PromptTokens: 500, OutputTokens: 100, Share: ShareLimits{OverShare: true}}, rand.New(rand.NewPCG(1, 1))
	if n := testing.AllocsPerRun(100, func() { ChooseWorker(q, v, now, rng, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
