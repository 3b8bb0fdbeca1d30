package inflight

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
)

// TestSharedTokensMatchBlockUsers compares the shared tokens with a reference count over random additions and removals.
func TestSharedTokensMatchBlockUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		id, _ := l.AddWorker()
		now := time.Unix(0, 0)
		var open []*LedgerEntry
		t.Repeat(map[string]func(*rapid.T){
			"dispatch": func(t *rapid.T) {
				p := PromptPrefix{TokensPerByte: rapid.Float64Range(0.1, 0.5).Draw(t, "tokens per byte")}
				h := uint64(1)
				for range rapid.IntRange(0, 6).Draw(t, "blocks") {
					h = blockhash.ChainHash(h, uint64(rapid.IntRange(0, 1).Draw(t, "text")))
					p.Blocks = append(p.Blocks, h)
				}
				e := l.DispatchPrompt(id, 10, 1000, 100_000, p, now)
				clear(p.Blocks) // the slice belongs to the caller
				open = append(open, &e)
			},
			"finish": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("no prompts are running")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				l.FinishRequest(open[i], now)
				l.FinishRequest(open[i], now)
				open = append(open[:i], open[i+1:]...)
			},
			"": func(t *rapid.T) {
				users, want := map[uint64]int32{}, int64(0)
				for _, e := range open {
					for _, h := range e.prefixBlocks {
						users[h]++
					}
				}
				s := &l.slots[id].sharedPrefixes
				for h, n := range users {
					if s.blockUsers(h) != n {
						t.Fatalf("block %x has %d users, not %d", h, s.blockUsers(h), n)
					}
					at, _ := s.byHash.Get(h)
					want += int64(n-1) * int64(s.blocks[at].tokens)
				}
				if s.byHash.Len() != len(users) || len(s.blocks)-len(s.freeBlocks) != len(users) || s.sharedTokens != want {
					t.Fatalf("%d tokens of %d blocks are shared, not %d of %d", s.sharedTokens, s.byHash.Len(), want, len(users))
				}
				if a := l.ReadLoad(id, 1, now); a.SharedKV > a.KV {
					t.Fatalf("of %d tokens %d are held twice", a.KV, a.SharedKV)
				}
			},
		})
	})
}
