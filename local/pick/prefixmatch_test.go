package pick

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

// TestOnlyLongestHolderIsCreditedWithSuffix: the answer is cached where the whole of the last turn is.
func TestOnlyLongestHolderIsCreditedWithSuffix(t *testing.T) {
	v, _ := newTestFleet(3, "A100")
	blocks := blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "acme", "m"), make([]byte, 16<<10))
	v.Index.InsertPrompt(0, blocks[:20])
	v.Index.InsertPrompt(1, blocks[:10])
	v.SuffixHits = &prefix.SuffixHitRate{}
	q := PlacementQuery{PromptTokens: 4096, PromptBytes: 16 << 10, OutputTokens: 100, Blocks: blocks}
	ask := func() (had [3]int64, out Choice) {
		out, ok := ChooseWorker(&q, v, testStart, testRNG(), nil)
		if !ok {
			t.Fatal("no worker was chosen")
		}
		for i := range had {
			had[i] = int64(v.placement.match.tokensOn(int32(i)))
		}
		return had, out
	}
	plain, _ := ask()
	for range 100 {
		v.SuffixHits.LearnSuffix(true, 2000, 2500, 3000)
	}
	had, out := ask()
	want := plain[0] + (q.PromptTokens-1-plain[0])/2
	if had[0] != want || had[1] != plain[1] || had[2] != 0 {
		t.Errorf("cached tokens %v, and %v before anything was learned", had, plain)
	}
	if out.Index != 0 || out.CachedTokens != want || out.KnownTokens != plain[0] || !out.LongestHolder || !out.SoleHolder {
		t.Errorf("the choice is %+v", out)
	}
	v.Index.InsertPrompt(2, blocks[:20])
	if had, out = ask(); had[0] != plain[0] || out.SoleHolder || out.KnownTokens != out.CachedTokens {
		t.Errorf("with two holders, cached tokens are %v and the choice is %+v", had, out)
	}
}

// TestOverShareRequestWaitsForPrefixHolder: the request is not recomputed on another worker before it has waited for as
// long as that would take. On the holder, where it costs others only step time, it may join a larger batch.
func TestOverShareRequestWaitsForPrefixHolder(t *testing.T) {
	now := time.Unix(1e9, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 80_000)
	blocks := blockhash.AppendBlockHashes(nil, 7, text)
	for _, c := range []struct {
		what   string
		seqs   int  // decoding on the prefix holder, with 20,000 tokens of context each
		full   bool // the holder has no room
		waited time.Duration
		want   int // -1: it waits
	}{
		{"a small batch", 2, false, 0, 0},
		{"a batch too large for an uncached prompt", 5, false, 0, 0},
		{"a batch too large for any request over fair share", 15, false, 0, -1},
		{"the same after a wait longer than the prefill", 15, false, 10 * time.Second, 1},
		{"no holder with room", 0, true, 0, 1},
	} {
		v := newOverShareView(2)
		v.Index = prefix.NewIndex(1 << 20)
		v.Index.InsertPrompt(0, blocks)
		for range c.seqs {
			e := v.Ledger.DispatchRequest(0, 1, 20_000, 400_000, now)
			v.Ledger.RecordFirstByte(&e, now)
		}
		if c.full {
			w := v.Workers[0]
			w.DownReason = "ejected"
			v.SetWorker(0, w)
		}
		q := &PlacementQuery{PromptTokens: 20_000, OutputTokens: 100, PromptBytes: int64(len(text)), Blocks: blocks, MaxWait: time.Second, Share: ShareLimits{OverShare: true}, Waited: c.waited}
		d, ok := ChooseWorker(q, v, now, rng, nil)
		if d.Index != c.want || ok != (c.want >= 0) {
			t.Errorf("%s: it goes to %d, want %d (%s)", c.what, d.Index, c.want, d.Reason)
		}
	}
}

// TestOverShareBoundCountsUncachedTokens: most of the prompt is cached and the rest is short, so it may wait behind
// another prompt.
func TestOverShareBoundCountsUncachedTokens(t *testing.T) {
	now := time.Unix(1e9, 0)
	text := make([]byte, blockhash.BytesCovered(30))
	blocks := blockhash.AppendBlockHashes(nil, 7, text)
	v := newOverShareView(1)
	v.Index = prefix.NewIndex(1 << 20)
	v.Ledger.DispatchRequest(0, 100, 1000, 400_000, now)
	q := &PlacementQuery{PromptTokens: 20_000, OutputTokens: 100, PromptBytes: int64(len(text)), Blocks: blocks, MaxWait: time.Second, Share: ShareLimits{OverShare: true}}
	if d, ok := ChooseWorker(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); ok {
		t.Errorf("a request over fair share of 20,000 tokens is admitted behind another prompt: %+v", d)
	}
	v.Index.InsertPrompt(0, blocks)
	if d, ok := ChooseWorker(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); !ok {
		t.Errorf("a request over fair share whose prompt is cached is not admitted: %+v", d)
	}
}

// TestFalsePrefixHitsStopAttracting: an engine has lost its cache without an event. Each answer reports few
// cached tokens; within 60 answers the hit rate is below a tenth, and the worker attracts no more requests than
// another.
func TestFalsePrefixHitsStopAttracting(t *testing.T) {
	learner := perfmodel.NewRateLearner(perfmodel.EstimatePrior("A100", "llama-3.1-8b").Rates)
	for range 60 {
		learner.LearnHit(2000, 0)
	}
	if trust := learner.Rates().HitRate; trust > 0.1 {
		t.Fatalf("after 60 false hits the hit rate is still %.2f", trust)
	}
	v, l := newTestFleet(2, "A100")
	prompt := make([]byte, 16<<10)
	blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
	v.Index.InsertPrompt(0, blocks)
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Rates.HitRate = learner.Rates().HitRate })
	l.DispatchRequest(0, 1000, 1200, 0, testStart)
	q := &PlacementQuery{PromptTokens: 4096, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: time.Second}
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok || d.Index != 1 {
		t.Errorf("a lost cache attracted the request to the busier worker: %+v", d)
	}
	for range 60 {
		learner.LearnHit(2000, 2000)
	}
	if trust := learner.Rates().HitRate; trust < 0.9 {
		t.Errorf("after 60 true hits the hit rate is only %.2f", trust)
	}
}
