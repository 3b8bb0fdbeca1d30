package perfmodel

import (
	"math"
	"math/rand/v2"
	"testing"
)

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
