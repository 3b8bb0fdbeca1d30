package pick

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// guestView is a view of workers that are all as their priors say.
func guestView(n int) *View {
	l := NewLedger()
	ws := make([]Worker, n)
	for i := range ws {
		id, _ := l.Add()
		ws[i] = Worker{ID: id, Name: string(rune('a' + i)), Rates: PriorFor("H100", "8b").Rates, KVTotal: 400_000, Slots: 1024}
	}
	return NewView(ws, l, nil, Predictive)
}

func TestAGuestJoinsInSmallPieces(t *testing.T) {
	now := time.Unix(1e9, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	ask := func(v *View, prompt int64, guest bool) bool {
		_, ok := Choose(&Query{PromptTokens: prompt, OutputTokens: 100, MaxWait: time.Second, Guest: guest}, v, now, rng, nil)
		return ok
	}
	for _, c := range []struct {
		what        string
		before, own int64 // prefill in tokens
		seqs        int   // that decode, of 1,000 tokens each
		want        bool
	}{
		{"an idle engine takes any prompt", 0, 100_000, 0, true},
		{"two prompts that a step takes for nothing", 100, 150, 0, true},
		{"a prompt behind another", 500, 500, 0, false},
		{"a short prompt behind a long one", 500, 10, 0, false},
		{"a small batch", 0, 500, 30, true},
		{"a batch that makes every step longer", 0, 500, 200, false},
	} {
		v := guestView(1)
		for range c.seqs {
			e := v.Ledger.Dispatch(0, 1, 1000, 400_000, now)
			v.Ledger.FirstByte(&e, now)
		}
		if c.before > 0 {
			v.Ledger.Dispatch(0, c.before, c.before, 400_000, now)
		}
		if got := ask(v, c.own, true); got != c.want {
			t.Errorf("%s: a guest enters: %v", c.what, got)
		}
		if !ask(v, c.own, false) {
			t.Errorf("%s: who is no guest does not enter", c.what)
		}
	}
}

// TestAGuestJoinsWhenAPromptIsNearlyDone: by the clock, before its first token has come back, so that no step is without one.
func TestAGuestJoinsWhenAPromptIsNearlyDone(t *testing.T) {
	now := time.Unix(1e9, 0)
	v := guestView(1)
	v.Ledger.Dispatch(0, 4000, 4000, 400_000, now)
	took := time.Duration(4000 / v.Workers[0].Rates.PrefillRate * float64(time.Second))
	q := &Query{PromptTokens: guestPrefill / 2, OutputTokens: 100, MaxWait: time.Second, Guest: true}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {took / 2, false}, {took * 19 / 20, true}, {2 * took, true}} {
		if _, ok := Choose(q, v, now.Add(c.after), rand.New(rand.NewPCG(1, 1)), nil); ok != c.want {
			t.Errorf("%v after a prompt that takes %v a short guest enters: %v", c.after, took, ok)
		}
	}
}

// TestALongGuestLeavesWorkersCalm: while others want their parts, some workers have no prefill for as long as only guests come.
func TestALongGuestLeavesWorkersCalm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, rng := time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 1))
		n := rapid.IntRange(1, 26).Draw(t, "workers")
		v := guestView(n)
		busy := map[int]bool{}
		for range 3 * n {
			q := &Query{PromptTokens: rapid.Int64Range(guestPrefill+1, 20_000).Draw(t, "prompt"), OutputTokens: 100, MaxWait: time.Second, Guest: true}
			d, ok := Choose(q, v, now, rng, nil)
			if !ok {
				break
			}
			if busy[d.Index] {
				t.Fatal("two long guests' prompts stand in one engine")
			}
			busy[d.Index] = true
			v.Ledger.Dispatch(v.Workers[d.Index].ID, q.PromptTokens, q.PromptTokens, 400_000, now)
		}
		if want := n - int(math.Sqrt(float64(n))/2); len(busy) != want {
			t.Fatalf("long guests take %d of %d workers, and should %d", len(busy), n, want)
		}
		if _, ok := Choose(&Query{PromptTokens: guestPrefill, OutputTokens: 100, MaxWait: time.Second, Guest: true}, v, now, rng, nil); ok != (len(busy) < n) {
			t.Fatalf("a short guest enters: %v", ok)
		}
	})
}

// TestAGuestNeverStarves: a worker that holds fewer than guestSeqs sequences and no prefill takes a guest, whatever is
// believed of it.
func TestAGuestNeverStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := guestView(1)
		w := v.Workers[0]
		rate := rapid.OneOf(rapid.Float64Range(1, 1e6), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, -1}))
		w.Rates = Rates{
			PrefillBase: rate.Draw(t, "base"), PrefillRate: rapid.Float64Range(1, 1e6).Draw(t, "rate"),
			StepBase: rate.Draw(t, "step"), StepSlope: rate.Draw(t, "slope"), StepContext: rate.Draw(t, "context"),
		}
		v.Set(0, w)
		now := time.Unix(1e9, 0)
		for range rapid.IntRange(0, guestSeqs-1).Draw(t, "seqs") {
			e := v.Ledger.Dispatch(0, 1, 1000, 400_000, now)
			v.Ledger.FirstByte(&e, now)
		}
		q := &Query{PromptTokens: rapid.Int64Range(1, 100_000).Draw(t, "prompt"), OutputTokens: 100, Guest: true}
		if _, ok := Choose(q, v, now, rand.New(rand.NewPCG(1, 1)), nil); !ok {
			t.Fatal("no room for a guest")
		}
	})
}

func TestPlacingAGuestAllocatesNothing(t *testing.T) {
	v, now := guestView(8), time.Unix(1e9, 0)
	q, rng := &Query{PromptTokens: 500, OutputTokens: 100, Guest: true}, rand.New(rand.NewPCG(1, 1))
	if n := testing.AllocsPerRun(100, func() { Choose(q, v, now, rng, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestStepsAreLearnedUnderPrefill: an engine whose steps also take prompts is learned as what it is at decoding.
func TestStepsAreLearnedUnderPrefill(t *testing.T) {
	truth := Rates{PrefillRate: 42_000, StepBase: 0.0066, StepSlope: 7e-6, StepContext: 65e-6}
	prior := PriorFor("", "8b").Rates // of a GPU that nobody named
	l := NewLearner(prior)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		seqs := float64(1 + rng.IntN(60))
		held := seqs * (500 + 300*rng.Float64())
		tokens := float64(60 + rng.IntN(60))
		prompts := rng.IntN(int(tokens) / 2)
		took := tokens * truth.Step(seqs, held)
		var done Prefilled
		for range prompts {
			n := int64(300 + rng.IntN(1500))
			done.Tokens += n
			done.Prompts++
			took += float64(n)/truth.PrefillRate - hidden*truth.StepBase
		}
		r := l.Rates()
		r.PrefillRate = truth.PrefillRate
		l.Step(seqs, held, (took*(1+0.03*rng.NormFloat64())-r.Slowed(Prefilled{}, done))/tokens)
	}
	got := l.Rates()
	for _, seqs := range []float64{1, 20, 60} {
		if is, want := got.Step(seqs, 650*seqs), truth.Step(seqs, 650*seqs); math.Abs(is/want-1) > 0.1 {
			t.Errorf("a step of %.0f sequences is believed to take %.2f ms, and takes %.2f", seqs, 1000*is, 1000*want)
		}
	}
}
