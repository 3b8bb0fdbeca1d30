package gpu

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check holds what must be true of an engine between any two calls.
func check(t *rapid.T, e *Engine) {
	scheduled := 0
	var holdings []*holding
	for _, s := range e.running {
		scheduled += s.scheduled
		if s.state != running {
			t.Fatalf("a sequence in state %d runs", s.state)
		}
		if s.held.blocks() < blocksFor(s.computed+s.scheduled) {
			t.Fatalf("%d tokens in %d blocks", s.computed+s.scheduled, s.held.blocks())
		}
		if s.held.shared > s.computed/BlockTokens {
			t.Fatalf("%d blocks are cached of %d tokens", s.held.shared, s.computed)
		}
		if s.cached >= s.req.PromptTokens {
			t.Fatalf("the prefix cache covered all %d prompt tokens", s.req.PromptTokens)
		}
		holdings = append(holdings, &s.held)
	}
	checkPool(t, e.pool, holdings)
	if scheduled > e.limits.MaxBatchedTokens || len(e.running) > e.limits.MaxSeqs {
		t.Fatalf("a step of %d tokens and %d sequences, at most %d and %d", scheduled, len(e.running), e.limits.MaxBatchedTokens, e.limits.MaxSeqs)
	}
	for i, s := range e.waiting {
		if s.held.blocks() > 0 || s.state != waiting {
			t.Fatalf("waiting sequence %d holds %d blocks in state %d", i, s.held.blocks(), s.state)
		}
	}
}

func TestEngineKeepsItsPromises(t *testing.T) {
	profile := lookup(t, "H100", "Llama-3.1-8B", 1)
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]int{0, 0, 10, 200}).Draw(t, "host blocks")
		p := profile
		p.Blocks = rapid.IntRange(8, 80).Draw(t, "blocks")
		e, err := NewEngine(EngineConfig{
			Profile: p,
			Limits: Limits{
				MaxBatchedTokens: rapid.IntRange(16, 300).Draw(t, "budget"),
				MaxSeqs:          rapid.IntRange(1, 16).Draw(t, "seqs"),
				MaxWaiting:       64,
			},
			Rand:       rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
			HostBlocks: host,
		})
		if err != nil {
			t.Fatal(err)
		}
		now := epoch
		var all []*Sequence
		dropped := map[*Sequence]bool{}
		recomputed := map[*Sequence]int{}
		step := func() {
			next, ok := e.Next()
			if !ok {
				return
			}
			if next.After(now) {
				now = next
			}
			for _, s := range e.Advance(now) {
				if dropped[s] {
					t.Fatal("a cancelled sequence made a token")
				}
				recomputed[s]++
			}
			check(t, e)
		}
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0, 1, 2:
				in := rapid.IntRange(1, e.limits.MaxModelLen-1).Draw(t, "in")
				out := rapid.IntRange(1, e.limits.MaxModelLen-in).Draw(t, "out")
				r := Request{PromptTokens: in, OutputTokens: out}
				switch rapid.IntRange(0, 2).Draw(t, "shared") {
				case 0:
					r.Prefix = chain(rapid.Uint64Range(0, 2).Draw(t, "family"), in/BlockTokens)
				case 1:
					r.Prompt, r.Answer = drawText(t, "text"), rapid.Uint64Range(0, 3).Draw(t, "answer")
				}
				if s, err := e.Submit(now, r); err == nil {
					all = append(all, s)
				}
			case 3:
				if len(all) > 0 {
					s := all[rapid.IntRange(0, len(all)-1).Draw(t, "victim")]
					dropped[s] = e.Cancel(s) || dropped[s]
				}
				check(t, e)
			default:
				for range 5 {
					step()
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
		}
		for range 100_000 {
			if _, ok := e.Next(); !ok {
				break
			}
			step()
		}
		for _, s := range all {
			if !dropped[s] && (!s.Done() || s.Generated() != s.req.OutputTokens || recomputed[s] != s.req.OutputTokens) {
				t.Fatalf("a sequence ended with %d (%d reported) of %d tokens", s.Generated(), recomputed[s], s.req.OutputTokens)
			}
		}
		if g := e.Gauges(); g.Running+g.Waiting+g.KVUsed != 0 {
			t.Fatalf("something is left: %+v", g)
		}
	})
}
