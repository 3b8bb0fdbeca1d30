package pick

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAGuestWaitsForWhoKeepsItsPrompt: it is not computed anew elsewhere before it has waited as long as that would take, and
// joins a larger batch where all that it costs is its part of the steps.
func TestAGuestWaitsForWhoKeepsItsPrompt(t *testing.T) {
	now := time.Unix(1e9, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 80_000)
	blocks := Blocks(nil, 7, text)
	for _, c := range []struct {
		what   string
		seqs   int  // that decode at the worker that keeps it, of 20,000 tokens each
		full   bool // it takes nothing more
		waited time.Duration
		want   int // -1: it waits
	}{
		{"a small batch", 2, false, 0, 0},
		{"a batch too large for a prompt that is computed there", 5, false, 0, 0},
		{"a batch too large for any guest", 15, false, 0, -1},
		{"that for longer than the prompt takes", 15, false, 10 * time.Second, 1},
		{"nobody up keeps it", 0, true, 0, 1},
	} {
		v := guestView(2)
		v.Index = NewIndex(1 << 20)
		v.Index.Insert(0, blocks)
		for range c.seqs {
			e := v.Ledger.Dispatch(0, 1, 20_000, 400_000, now)
			v.Ledger.FirstByte(&e, now)
		}
		if c.full {
			w := v.Workers[0]
			w.Down = "ejected"
			v.Set(0, w)
		}
		q := &Query{PromptTokens: 20_000, OutputTokens: 100, PromptBytes: int64(len(text)), Blocks: blocks, MaxWait: time.Second, Guest: true, Waited: c.waited}
		d, ok := Choose(q, v, now, rng, nil)
		if d.Index != c.want || ok != (c.want >= 0) {
			t.Errorf("%s: it goes to %d, and should to %d (%s)", c.what, d.Index, c.want, d.Reason)
		}
	}
}

// TestAGuestIsMeasuredByWhatItMustCompute: most of a prompt is there, and the rest is short: it may stand behind another.
func TestAGuestIsMeasuredByWhatItMustCompute(t *testing.T) {
	now := time.Unix(1e9, 0)
	text := make([]byte, blockEnd(30))
	blocks := Blocks(nil, 7, text)
	v := guestView(1)
	v.Index = NewIndex(1 << 20)
	v.Ledger.Dispatch(0, 100, 1000, 400_000, now)
	q := &Query{PromptTokens: 20_000, OutputTokens: 100, PromptBytes: int64(len(text)), Blocks: blocks, MaxWait: time.Second, Guest: true}
	if d, ok := Choose(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); ok {
		t.Errorf("a guest of 20,000 tokens stands behind another prompt: %+v", d)
	}
	v.Index.Insert(0, blocks)
	if d, ok := Choose(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); !ok {
		t.Errorf("a guest whose prompt is cached does not: %+v", d)
	}
}
