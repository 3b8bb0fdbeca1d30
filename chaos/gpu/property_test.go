package gpu

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkEngine checks the invariants of an engine between two calls.
func checkEngine(t *rapid.T, e *Engine) {
	scheduled := 0
	var holdings []*blockTable
	for _, s := range e.running {
		scheduled += s.scheduledTokens
		if s.state != stateRunning {
			t.Fatalf("a sequence in state %d runs", s.state)
		}
		if s.table.countBlocks() < blocksFor(s.computedTokens+s.scheduledTokens) {
			t.Fatalf("%d tokens in %d blocks", s.computedTokens+s.scheduledTokens, s.table.countBlocks())
		}
		if s.table.sharedBlocks > s.computedTokens/BlockTokens {
			t.Fatalf("%d blocks are cached of %d tokens", s.table.sharedBlocks, s.computedTokens)
		}
		if s.cachedTokens >= s.request.PromptTokens {
			t.Fatalf("the prefix cache covered all %d prompt tokens", s.request.PromptTokens)
		}
		holdings = append(holdings, &s.table)
	}
	checkPool(t, e.cache, holdings)
	if scheduled > e.limits.MaxBatchedTokens || len(e.running) > e.limits.MaxSeqs {
		t.Fatalf("a step of %d tokens and %d sequences, at most %d and %d", scheduled, len(e.running), e.limits.MaxBatchedTokens, e.limits.MaxSeqs)
	}
	for i, s := range e.waiting {
		if s.table.countBlocks() > 0 || s.state != stateWaiting {
			t.Fatalf("waiting sequence %d holds %d blocks in state %d", i, s.table.countBlocks(), s.state)
		}
	}
}

func TestEngineKeepsItsInvariants(t *testing.T) {
	profile := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]int{0, 0, 10, 200}).Draw(t, "host blocks")
		p := profile
		p.Blocks = rapid.IntRange(8, 80).Draw(t, "blocks")
		e, err := NewEngine(EngineConfig{
			Profile: p,
			Limits: EngineLimits{
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
			next, ok := e.NextEvent()
			if !ok {
				return
			}
			if next.After(now) {
				now = next
			}
			for _, s := range e.AdvanceTo(now) {
				if dropped[s] {
					t.Fatal("a cancelled sequence made a token")
				}
				recomputed[s]++
			}
			checkEngine(t, e)
		}
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0, 1, 2:
				in := rapid.IntRange(1, e.limits.MaxModelLen-1).Draw(t, "in")
				out := rapid.IntRange(1, e.limits.MaxModelLen-in).Draw(t, "out")
				r := EngineRequest{PromptTokens: in, OutputTokens: out}
				switch rapid.IntRange(0, 2).Draw(t, "shared") {
				case 0:
					r.PrefixHashes = hashChain(rapid.Uint64Range(0, 2).Draw(t, "family"), in/BlockTokens)
				case 1:
					r.Prompt, r.AnswerID = drawText(t, "text"), rapid.Uint64Range(0, 3).Draw(t, "answer")
				}
				if s, err := e.Submit(now, r); err == nil {
					all = append(all, s)
				}
			case 3:
				if len(all) > 0 {
					s := all[rapid.IntRange(0, len(all)-1).Draw(t, "victim")]
					dropped[s] = e.Cancel(s) || dropped[s]
				}
				checkEngine(t, e)
			default:
				for range 5 {
					step()
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
		}
		for range 100_000 {
			if _, ok := e.NextEvent(); !ok {
				break
			}
			step()
		}
		for _, s := range all {
			if !dropped[s] && (!s.IsDone() || s.GeneratedTokens() != s.request.OutputTokens || recomputed[s] != s.request.OutputTokens) {
				t.Fatalf("a sequence ended with %d (%d reported) of %d tokens", s.GeneratedTokens(), recomputed[s], s.request.OutputTokens)
			}
		}
		if g := e.Gauges(); g.Running+g.Waiting+g.KVUsed != 0 {
			t.Fatalf("something is left: %+v", g)
		}
	})
}
