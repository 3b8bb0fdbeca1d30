package perfmodel

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// newPeerLearners returns n learners of equal GPUs. Each has learned from answers of a worker with these rates, times
// its pace.
func newPeerLearners(rng *rand.Rand, truth Rates, paces ...float64) []*RateLearner {
	list := make([]*RateLearner, len(paces))
	for i, pace := range paces {
		list[i] = NewRateLearner(EstimatePrior("H100", "llama-3.1-8b").Rates)
		for range 300 {
			work, seqs := 200+3000*rng.Float64(), 60+math.Round(20*rng.Float64())
			noise := func() float64 { return 0.6 + 0.8*rng.Float64() }
			list[i].LearnFirstToken(work, pace*noise()*(truth.PrefillBase+work/truth.PrefillRate))
			list[i].LearnStep(seqs, 1500*seqs, pace*noise()*truth.StepSeconds(seqs, 1500*seqs))
		}
	}
	return list
}

// ratesAfterCohortUpdates updates the cohort for so long and returns the rates.
func ratesAfterCohortUpdates(list []*RateLearner, span time.Duration) []Rates {
	for at := time.Duration(0); at <= span; at += 250 * time.Millisecond {
		UpdateCohorts(list, testStart.Add(at))
	}
	out := make([]Rates, len(list))
	for i, l := range list {
		out[i] = l.Rates()
	}
	return out
}

// TestEqualWorkersGetCohortRates: equal workers learn different rates, depending on the requests they served. When
// these were used directly, two of eight equal workers received nearly no requests for minutes, and the others all of
// them.
func TestEqualWorkersGetCohortRates(t *testing.T) {
	truth := EstimatePrior("H100", "llama-3.1-8b").Rates
	list := newPeerLearners(testRNG(), truth, 1, 1, 1, 1, 1, 1, 1, 1)
	rates := ratesAfterCohortUpdates(list, 5*time.Second)
	for i := range rates {
		if r := rates[i]; r != rates[0] {
			t.Errorf("worker %d has rates %+v and worker 0 %+v", i, r, rates[0])
		}
	}
	if got, want := rates[0].StepSeconds(70, 105_000), truth.StepSeconds(70, 105_000); math.Abs(got/want-1) > 0.15 {
		t.Errorf("a step takes %.1f ms, estimated %.1f ms", 1000*want, 1000*got)
	}
}

// TestDivergingWorkerKeepsItsOwnRates: one of eight workers becomes three times as slow. Within seconds its own rates
// are used.
func TestDivergingWorkerKeepsItsOwnRates(t *testing.T) {
	truth := EstimatePrior("H100", "llama-3.1-8b").Rates
	list := newPeerLearners(testRNG(), truth, 1, 1, 1, 3, 1, 1, 1, 1)
	rates := ratesAfterCohortUpdates(list, 5*time.Second)
	for i, r := range rates {
		slow := r.PrefillBase + 1000/r.PrefillRate
		want := (truth.PrefillBase + 1000/truth.PrefillRate) * map[bool]float64{false: 1, true: 3}[i == 3]
		if math.Abs(slow/want-1) > 0.3 {
			t.Errorf("worker %d: a prompt of 1,000 tokens takes %.0f ms, estimated %.0f ms", i, 1000*want, 1000*slow)
		}
	}
}

// TestFewWorkersFormNoCohort: two workers, or workers with different GPUs, are never compared.
func TestFewWorkersFormNoCohort(t *testing.T) {
	list := newPeerLearners(testRNG(), EstimatePrior("H100", "llama-3.1-8b").Rates, 1, 1.2)
	for _, gpu := range []string{"A100", "L4"} {
		list = append(list, NewRateLearner(EstimatePrior(gpu, "llama-3.1-8b").Rates))
	}
	var own []Rates
	for _, l := range list {
		own = append(own, l.Rates())
	}
	for i, r := range ratesAfterCohortUpdates(list, 5*time.Second) {
		if r != own[i] {
			t.Errorf("worker %d has rates %+v, its own are %+v", i, r, own[i])
		}
	}
}

// TestCohortRejectsImpossibleRates: a worker's effective rates lie between what it and its peers have learned, for any
// observations.
func TestCohortRejectsImpossibleRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]*RateLearner, rapid.IntRange(0, 9).Draw(t, "workers"))
		for i := range list {
			list[i] = NewRateLearner(EstimatePrior(rapid.SampledFrom([]string{"L4", "H100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates)
			for range rapid.IntRange(0, 20).Draw(t, "answers") {
				list[i].LearnFirstToken(rapid.Float64().Draw(t, "work"), rapid.Float64().Draw(t, "seconds"))
				list[i].LearnStep(rapid.Float64Range(0, 500).Draw(t, "seqs"), rapid.Float64Range(0, 1e6).Draw(t, "context"), rapid.Float64().Draw(t, "step"))
			}
		}
		now := testStart
		for range rapid.IntRange(1, 4).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e10).Draw(t, "later")))
			UpdateCohorts(list, now)
		}
		least, most := math.Inf(1), 0.0
		for _, l := range list {
			least, most = min(least, l.prefill.weights[1]), max(most, l.prefill.weights[1])
		}
		for _, l := range list {
			r := l.Rates()
			if !r.IsValid() {
				t.Fatalf("invalid rates: %+v", r)
			}
			if p := kilo / r.PrefillRate; p < least*(1-1e-9) || p > most*(1+1e-9) {
				t.Fatalf("%v s for 1,000 tokens, though all learned %v to %v", p, least, most)
			}
		}
	})
}

// TestSlowEstimateDecaysToCohort: for any observations and any pace of the peers, a pessimistic estimate comes within 5
// % of the peers in twelve half-lives without an answer and never passes them. Optimistic estimates stay, and no
// estimate is NaN, even with clocks that go back.
func TestSlowEstimateDecaysToCohort(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := NewRateLearner(EstimatePrior("L4", "llama-3.1-8b").Rates)
		for range rapid.IntRange(0, 60).Draw(rt, "answers") {
			l.LearnFirstToken(rapid.Float64Range(1, 1e5).Draw(rt, "work"), rapid.Float64Range(1e-4, 600).Draw(rt, "seconds"))
			l.LearnStep(rapid.Float64Range(1, 256).Draw(rt, "seqs"), rapid.Float64Range(0, 1e6).Draw(rt, "context"), rapid.Float64Range(1e-4, 10).Draw(rt, "step"))
		}
		peers := rapid.SampledFrom([]float64{0.3, 1, 4, 100, 0, -1, math.NaN(), math.Inf(1)}).Draw(rt, "peers")
		now := testStart
		l.DecayToCohort(peers, peers, now)
		p0, s0, _ := l.RelativePace()
		for range 90 { // 2 s each
			now = now.Add(2 * time.Second)
			l.DecayToCohort(peers, peers, now)
		}
		l.DecayToCohort(peers, peers, now.Add(-time.Hour))
		p1, s1, _ := l.RelativePace()
		for _, x := range [][2]float64{{p0, p1}, {s0, s1}} {
			to := max(1/maxPriorFactor, min(peers, maxPriorFactor))
			switch {
			case math.IsNaN(x[1]) || math.IsInf(x[1], 0) || x[1] <= 0:
				rt.Fatalf("a pace of %v became %v", x[0], x[1])
			case !(peers > 0) || x[0] <= to:
				if x[1] != x[0] {
					rt.Fatalf("with peers at %v a pace of %v became %v", peers, x[0], x[1])
				}
			case x[1] > to*decayedWithin*1.0001 || x[1] < to*0.9999:
				rt.Fatalf("with peers at %v a pace of %v became %v", peers, x[0], x[1])
			}
		}
	})
}
