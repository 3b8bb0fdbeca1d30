package pick

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix"
)

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
