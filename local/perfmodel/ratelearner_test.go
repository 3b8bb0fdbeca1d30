package perfmodel

import (
	"math"
	"testing"

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
