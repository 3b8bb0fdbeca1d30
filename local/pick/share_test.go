package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhatIsSharedIsWhatBlocksSay holds the account to a count by hand, whatever comes and goes.
func TestWhatIsSharedIsWhatBlocksSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		id, _ := l.Add()
		now := time.Unix(0, 0)
		var open []*Entry
		t.Repeat(map[string]func(*rapid.T){
			"dispatch": func(t *rapid.T) {
				p := Prompt{PerByte: rapid.Float64Range(0.1, 0.5).Draw(t, "tokens per byte")}
				h := uint64(1)
				for range rapid.IntRange(0, 6).Draw(t, "blocks") {
					h = chain(h, uint64(rapid.IntRange(0, 1).Draw(t, "text")))
					p.Blocks = append(p.Blocks, h)
				}
				e := l.DispatchPrompt(id, 10, 1000, 100_000, p, now)
				clear(p.Blocks) // the caller's own
				open = append(open, &e)
			},
			"finish": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				l.Finish(open[i], now)
				l.Finish(open[i], now)
				open = append(open[:i], open[i+1:]...)
			},
			"": func(t *rapid.T) {
				users, want := map[uint64]int32{}, int64(0)
				for _, e := range open {
					for _, h := range e.blocks {
						users[h]++
					}
				}
				s := &l.slots[id].shares
				for h, n := range users {
					if s.users(h) != n {
						t.Fatalf("block %x has %d users, not %d", h, s.users(h), n)
					}
					at, _ := s.at.get(h)
					want += int64(n-1) * int64(s.blocks[at].tokens)
				}
				if s.at.len() != len(users) || len(s.blocks)-len(s.free) != len(users) || s.tokens != want {
					t.Fatalf("%d tokens of %d blocks are shared, not %d of %d", s.tokens, s.at.len(), want, len(users))
				}
				if a := l.Load(id, 1, now); a.Shared > a.KV {
					t.Fatalf("of %d tokens %d are held twice", a.KV, a.Shared)
				}
			},
		})
	})
}

// TestPromptsThatBeginAlikeFitTogether: prompts of 4,000 tokens, of which 3,900 are the same, run to the last that fits when
// each adds only its own, where four of them fit that have nothing in common; an engine that shows more is believed.
func TestPromptsThatBeginAlikeFitTogether(t *testing.T) {
	alike := make([]byte, 15_600)
	run := func(begin func(i int) []byte) (n int, l *Ledger, id int32) {
		l = NewLedger()
		id, _ = l.Add()
		v := NewView([]Worker{{ID: id, Name: "w", KVTotal: 20_000, Rates: Rates{PrefillRate: 10_000, StepBase: 0.01, StepSlope: 0.001}}}, l, NewIndex(1<<20), Predictive)
		now := time.Unix(100, 0)
		for i := range 100 {
			q := Query{PromptTokens: 4000, PromptBytes: 16_000, OutputTokens: 200, Blocks: Blocks(nil, 1, begin(i))}
			d, ok := Choose(&q, v, now, nil, nil)
			if !ok {
				return i, l, id
			}
			l.DispatchPrompt(d.ID, 100, q.KV(), 20_000, q.Beginning(), now)
		}
		return 100, l, id
	}
	n, l, id := run(func(int) []byte { return alike })
	if load := l.Load(id, 1, time.Unix(100, 0)); n < 40 || load.HeldKV() > 20_000 || load.HeldKV() < 19_000 {
		t.Errorf("%d that begin alike run, and hold %d tokens", n, load.HeldKV())
	}
	l.Observe(id, Observation{Running: int64(n), KVUsed: 19_900})
	l.Observe(id, Observation{Running: int64(n), KVUsed: 19_900})
	if held := l.Load(id, 1, time.Unix(100, 0)).HeldKV(); held != 19_900 {
		t.Errorf("an engine that holds 19,900 tokens is said to hold %d", held)
	}
	n, _, _ = run(func(i int) []byte { alike[0] = byte(i); return alike })
	if n != 4 {
		t.Errorf("%d that have nothing in common run", n)
	}
}
