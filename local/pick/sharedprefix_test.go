package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

// TestSharedTokensMatchBlockUsers compares the shared tokens with a reference count over random additions and removals.
func TestSharedTokensMatchBlockUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewInflightLedger()
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

// TestPromptsWithSharedPrefixFitTogether: prompts of 4,000 tokens with 3,900 in common each count only their own
// tokens, so many fit where only four without a common prefix do. A scrape that shows more KV in use is accepted.
func TestPromptsWithSharedPrefixFitTogether(t *testing.T) {
	alike := make([]byte, 15_600)
	run := func(begin func(i int) []byte) (n int, l *InflightLedger, id int32) {
		l = NewInflightLedger()
		id, _ = l.AddWorker()
		v := NewWorkerView([]WorkerSnapshot{{ID: id, Name: "w", KVTotal: 20_000, Rates: perfmodel.Rates{PrefillRate: 10_000, StepBase: 0.01, StepSlope: 0.001}}}, l, prefix.NewIndex(1<<20), Predictive)
		now := time.Unix(100, 0)
		for i := range 100 {
			q := PlacementQuery{PromptTokens: 4000, PromptBytes: 16_000, OutputTokens: 200, Blocks: blockhash.AppendBlockHashes(nil, 1, begin(i))}
			d, ok := ChooseWorker(&q, v, now, nil, nil)
			if !ok {
				return i, l, id
			}
			l.DispatchPrompt(d.ID, 100, q.KVTokens(), 20_000, q.PromptPrefix(), now)
		}
		return 100, l, id
	}
	n, l, id := run(func(int) []byte { return alike })
	if load := l.ReadLoad(id, 1, time.Unix(100, 0)); n < 40 || load.HeldKV() > 20_000 || load.HeldKV() < 19_000 {
		t.Errorf("%d prompts with a shared prefix run, and hold %d tokens", n, load.HeldKV())
	}
	l.ObserveScrape(id, ScrapedLoad{Running: int64(n), KVUsed: 19_900})
	l.ObserveScrape(id, ScrapedLoad{Running: int64(n), KVUsed: 19_900})
	if held := l.ReadLoad(id, 1, time.Unix(100, 0)).HeldKV(); held != 19_900 {
		t.Errorf("an engine that holds 19,900 tokens is counted with %d", held)
	}
	n, _, _ = run(func(i int) []byte { alike[0] = byte(i); return alike })
	if n != 4 {
		t.Errorf("%d prompts without a shared prefix run", n)
	}
}
