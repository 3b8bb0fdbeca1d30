package perfmodel

import (
	"testing"

	"pgregory.net/rapid"
)

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
