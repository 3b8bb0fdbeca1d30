package perfmodel

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLearnerFindsRatesThroughNoise(t *testing.T) {
	l := NewRateLearner(EstimatePrior("A100", "llama-3.1-8b").Rates)
	rng := testRNG()
	for i := range 600 {
		work := 100 + 6000*rng.Float64()
		y := 0.030 + work/6000
		if i%25 == 0 {
			y += 20 // a stalled answer
		}
		l.LearnFirstToken(work, y*math.Exp(0.1*rng.NormFloat64()))
		seqs := 1 + 40*rng.Float64()
		ctx := seqs * (500 + 4000*rng.Float64())
		l.LearnStep(seqs, ctx, (0.02+0.0003*seqs+0.0001*ctx/1000)*math.Exp(0.05*rng.NormFloat64()))
	}
	r := l.Rates()
	if r.PrefillRate < 4800 || r.PrefillRate > 7200 {
		t.Errorf("learned %.0f tokens/s, the truth is 6000", r.PrefillRate)
	}
	if s := r.StepSeconds(20, 40e3); s < 0.027 || s > 0.033 {
		t.Errorf("learned a step of %.4f s at 20 sequences of 2k context, the truth is 0.030", s)
	}
}

func TestLearnerStaysBoundedOnInvalidInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := EstimatePrior("L4", "llama-3.1-8b").Rates
		l := NewRateLearner(prior)
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			l.LearnFirstToken(rapid.Float64().Draw(t, "work"), rapid.Float64().Draw(t, "s"))
			l.LearnStep(rapid.Float64().Draw(t, "seqs"), rapid.Float64().Draw(t, "context"), rapid.Float64().Draw(t, "step"))
			l.LearnHit(rapid.Float64().Draw(t, "expected"), rapid.Float64().Draw(t, "actual"))
		}
		r := l.Rates()
		if !(r.PrefillRate >= prior.PrefillRate/17 && r.PrefillRate <= prior.PrefillRate*17) || !(r.StepSlope > 0) || !(r.StepBase >= 0) || !(r.HitRate > 0 && r.HitRate <= 1) {
			t.Fatalf("learned %+v from a prior of %+v", r, prior)
		}
	})
}

// TestLearnerDetectsAChange: a worker that becomes four times as slow is estimated so within ten answers, and one
// stalled answer changes nothing.
func TestLearnerDetectsAChange(t *testing.T) {
	prior := EstimatePrior("", "llama-3.1-8b").Rates
	l := NewRateLearner(prior)
	rng := testRNG()
	answer := func(slow float64) {
		work := 100 + 2000*rng.Float64()
		l.LearnFirstToken(work, slow*(0.09+work/3600)*math.Exp(0.05*rng.NormFloat64()))
	}
	for range 200 {
		answer(1)
	}
	before := l.Rates().PrefillRate
	l.LearnFirstToken(500, 60)
	if after := l.Rates().PrefillRate; math.Abs(after/before-1) > 0.1 {
		t.Errorf("one stalled answer changed the rate from %v to %v", before, after)
	}
	for range 10 {
		answer(4)
	}
	r := l.Rates()
	if got := r.PrefillBase + 1000/r.PrefillRate; got < 0.8 || got > 2 {
		t.Errorf("ten slow answers later 1,000 tokens are estimated at %.2f s, want about 1.5", got)
	}
	for range 10 {
		answer(1)
	}
	r = l.Rates()
	if got := r.PrefillBase + 1000/r.PrefillRate; got > 0.6 {
		t.Errorf("ten quick answers later 1,000 tokens are estimated at %.2f s, want about 0.37", got)
	}
}

// TestStepsAreLearnedUnderPrefill: an engine whose steps also contain prompts is learned with its pure decode rates.
func TestStepsAreLearnedUnderPrefill(t *testing.T) {
	truth := Rates{PrefillRate: 42_000, StepBase: 0.0066, StepSlope: 7e-6, StepContext: 65e-6}
	prior := EstimatePrior("", "8b").Rates // of an unknown GPU
	l := NewRateLearner(prior)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		seqs := float64(1 + rng.IntN(60))
		held := seqs * (500 + 300*rng.Float64())
		tokens := float64(60 + rng.IntN(60))
		prompts := rng.IntN(int(tokens) / 2)
		took := tokens * truth.StepSeconds(seqs, held)
		var done PrefillCounts
		for range prompts {
			n := int64(300 + rng.IntN(1500))
			done.Tokens += n
			done.Prompts++
			took += float64(n)/truth.PrefillRate - hiddenStepPart*truth.StepBase
		}
		r := l.Rates()
		r.PrefillRate = truth.PrefillRate
		l.LearnStep(seqs, held, (took*(1+0.03*rng.NormFloat64())-r.PrefillSlowdown(PrefillCounts{}, done))/tokens)
	}
	got := l.Rates()
	for _, seqs := range []float64{1, 20, 60} {
		if is, want := got.StepSeconds(seqs, 650*seqs), truth.StepSeconds(seqs, 650*seqs); math.Abs(is/want-1) > 0.1 {
			t.Errorf("a step of %.0f sequences is estimated at %.2f ms, and takes %.2f", seqs, 1000*is, 1000*want)
		}
	}
}

// TestShortPromptsDoNotFlattenPrefillSlope: a worker that is only sent mostly cached prompts computes prefills that
// hide in a step that reads the weights anyway, so that each takes the time of the step and the wait for it. A line
// through those alone has a slope of zero. Measured: one of eight L4s was estimated at sixteen times its prefill rate.
func TestShortPromptsDoNotFlattenPrefillSlope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := EstimatePrior(rapid.SampledFrom([]string{"L4", "A100", "H100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates
		l := NewRateLearner(prior)
		slow := rapid.Float64Range(0.7, 1.5).Draw(t, "slow")
		free := int(prior.StepBase * prior.PrefillRate) // tokens that hide in a step
		part := rapid.Float64Range(0, 1)
		for range rapid.IntRange(100, 600).Draw(t, "n") {
			work := rapid.IntRange(1, free).Draw(t, "work")
			l.LearnFirstToken(float64(work), slow*(prior.PrefillBase+part.Draw(t, "wait")*prior.StepBase))
		}
		if r := l.Rates().PrefillRate; r > 2*prior.PrefillRate/slow {
			t.Fatalf("estimated prefill rate %.0f tokens/s, actual %.0f", r, prior.PrefillRate/slow)
		}
	})
}

// TestConstantOverheadDoesNotRaisePrefillSlope: what an engine's server, a tokenizer or a proxy adds to every first
// token does not change the slope per prompt token.
func TestConstantOverheadDoesNotRaisePrefillSlope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := EstimatePrior(rapid.SampledFrom([]string{"L4", "A100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates
		l := NewRateLearner(prior)
		over := rapid.Float64Range(0, 0.1).Draw(t, "overhead")
		long, short := rapid.IntRange(3000, 8000), rapid.IntRange(20, 300)
		for i := range 600 {
			work := short.Draw(t, "short")
			if i%5 == 0 {
				work = long.Draw(t, "long")
			}
			l.LearnFirstToken(float64(work), over+prior.PrefillBase+float64(work)/prior.PrefillRate)
		}
		if r := l.Rates().PrefillRate; r < 0.85*prior.PrefillRate || r > 1.15*prior.PrefillRate {
			t.Fatalf("with %.0f ms added to every first token the estimated prefill rate is %.0f tokens/s, actual %.0f", 1000*over, r, prior.PrefillRate)
		}
	})
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
