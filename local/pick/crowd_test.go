package pick

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// peers are n learners of equal GPUs that have each answered as a worker with these rates would, times their pace.
func peers(rng *rand.Rand, truth Rates, paces ...float64) []*Learner {
	list := make([]*Learner, len(paces))
	for i, pace := range paces {
		list[i] = NewLearner(PriorFor("H100", "llama-3.1-8b").Rates)
		for range 300 {
			work, seqs := 200+3000*rng.Float64(), 60+math.Round(20*rng.Float64())
			noise := func() float64 { return 0.6 + 0.8*rng.Float64() }
			list[i].FirstToken(work, pace*noise()*(truth.PrefillBase+work/truth.PrefillRate))
			list[i].Step(seqs, 1500*seqs, pace*noise()*truth.Step(seqs, 1500*seqs))
		}
	}
	return list
}

// gathered compares them for so long.
func gathered(list []*Learner, span time.Duration) []Rates {
	for at := time.Duration(0); at <= span; at += 250 * time.Millisecond {
		Gather(list, t0.Add(at))
	}
	out := make([]Rates, len(list))
	for i, l := range list {
		out[i] = l.Rates()
	}
	return out
}

// TestEqualWorkersCountAsEqual: what equal workers happened to be sent leaves each with rates of its own. They were once
// believed: of eight equal workers two were sent nearly nothing for minutes, and the others all of it.
func TestEqualWorkersCountAsEqual(t *testing.T) {
	truth := PriorFor("H100", "llama-3.1-8b").Rates
	list := peers(testRNG(), truth, 1, 1, 1, 1, 1, 1, 1, 1)
	rates := gathered(list, 5*time.Second)
	for i := range rates {
		if r := rates[i]; r != rates[0] {
			t.Errorf("worker %d counts as %+v and worker 0 as %+v", i, r, rates[0])
		}
	}
	if got, want := rates[0].Step(70, 105_000), truth.Step(70, 105_000); math.Abs(got/want-1) > 0.15 {
		t.Errorf("a step takes %.1f ms, is believed to take %.1f ms", 1000*want, 1000*got)
	}
}

// TestWhoStandsApartCountsByItself: one of eight becomes three times as slow. Within seconds it is taken at its own word.
func TestWhoStandsApartCountsByItself(t *testing.T) {
	truth := PriorFor("H100", "llama-3.1-8b").Rates
	list := peers(testRNG(), truth, 1, 1, 1, 3, 1, 1, 1, 1)
	rates := gathered(list, 5*time.Second)
	for i, r := range rates {
		slow := r.PrefillBase + 1000/r.PrefillRate
		want := (truth.PrefillBase + 1000/truth.PrefillRate) * map[bool]float64{false: 1, true: 3}[i == 3]
		if math.Abs(slow/want-1) > 0.3 {
			t.Errorf("worker %d: a prompt of 1,000 tokens takes %.0f ms, is believed to take %.0f ms", i, 1000*want, 1000*slow)
		}
	}
}

// TestAFewAreNoCrowd: two workers, or those of unlike GPUs, are never compared.
func TestAFewAreNoCrowd(t *testing.T) {
	list := peers(testRNG(), PriorFor("H100", "llama-3.1-8b").Rates, 1, 1.2)
	for _, gpu := range []string{"A100", "L4"} {
		list = append(list, NewLearner(PriorFor(gpu, "llama-3.1-8b").Rates))
	}
	var own []Rates
	for _, l := range list {
		own = append(own, l.Rates())
	}
	for i, r := range gathered(list, 5*time.Second) {
		if r != own[i] {
			t.Errorf("worker %d counts as %+v, by itself as %+v", i, r, own[i])
		}
	}
}

// TestACrowdBelievesNothingImpossible: whatever each has learned, what counts lies between what it and its peers learned.
func TestACrowdBelievesNothingImpossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]*Learner, rapid.IntRange(0, 9).Draw(t, "workers"))
		for i := range list {
			list[i] = NewLearner(PriorFor(rapid.SampledFrom([]string{"L4", "H100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates)
			for range rapid.IntRange(0, 20).Draw(t, "answers") {
				list[i].FirstToken(rapid.Float64().Draw(t, "work"), rapid.Float64().Draw(t, "seconds"))
				list[i].Step(rapid.Float64Range(0, 500).Draw(t, "seqs"), rapid.Float64Range(0, 1e6).Draw(t, "context"), rapid.Float64().Draw(t, "step"))
			}
		}
		now := t0
		for range rapid.IntRange(1, 4).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e10).Draw(t, "later")))
			Gather(list, now)
		}
		least, most := math.Inf(1), 0.0
		for _, l := range list {
			least, most = min(least, l.prefill.w[1]), max(most, l.prefill.w[1])
		}
		for _, l := range list {
			w := Worker{Rates: l.Rates()}
			if w.odd() {
				t.Fatalf("what cannot be is believed: %+v", w.Rates)
			}
			if p := kilo / w.Rates.PrefillRate; p < least*(1-1e-9) || p > most*(1+1e-9) {
				t.Fatalf("%v s for 1,000 tokens, though all learned %v to %v", p, least, most)
			}
		}
	})
}

// TestTheHolderIsWorthItsWait: a worker whose backlog is over the target is no candidate, except for a prompt that it holds
// so much of that computing it anew elsewhere would take as long.
func TestTheHolderIsWorthItsWait(t *testing.T) {
	v, l, q := warmth(Predictive, 0, 1)
	q.MaxWait = time.Second
	over := int64(v.Workers[1].Rates.PrefillRate) + 2000 // tokens: a second and a little
	l.Dispatch(0, over, over, 0, t0)
	l.Dispatch(1, over, over, 0, t0)
	chosen(t, v, q, 1)
	q.Blocks = nil
	if d, ok := Choose(q, v, t0, testRNG(), nil); ok {
		t.Fatalf("chose %d though nobody holds the prompt and all backlogs are over the target", d.Index)
	}
}

// TestABatchThatWouldStallIsSpared: of two workers with the same backlog, and the same KV cache in use, a long prompt goes
// to the one where it stalls two answers, and not to the one where it stalls forty.
func TestABatchThatWouldStallIsSpared(t *testing.T) {
	v, l := fleet(2, "A100")
	for i, n := range []int64{40, 2} {
		for range n {
			e := l.Dispatch(int32(i), 0, 40_000/n, 0, t0)
			l.FirstByte(&e, t0)
		}
	}
	chosen(t, v, &Query{PromptTokens: 8000, OutputTokens: 1}, 1)
	// And of two with as many answers an answer's own steps are shorter where these are short.
	v, l = fleet(2, "A100")
	for i, kv := range []int64{5_000, 500} {
		for range 20 {
			e := l.Dispatch(int32(i), 0, kv, 0, t0)
			l.FirstByte(&e, t0)
		}
	}
	chosen(t, v, &Query{PromptTokens: 100, OutputTokens: 300}, 1)
}
