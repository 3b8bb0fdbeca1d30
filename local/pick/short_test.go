package pick

import (
	"testing"

	"pgregory.net/rapid"
)

// TestShortPromptsSayNothingOfLongOnes: a worker that is only sent what is mostly cached computes prompts that hide in a step
// that reads the weights anyway, so that the time of each is the step's and the wait for it. A line through those alone says
// that prompt tokens cost nothing; one of eight L4 was believed sixteen times as fast as it is.
func TestShortPromptsSayNothingOfLongOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := PriorFor(rapid.SampledFrom([]string{"L4", "A100", "H100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates
		l := NewLearner(prior)
		slow := rapid.Float64Range(0.7, 1.5).Draw(t, "slow")
		free := int(prior.StepBase * prior.PrefillRate) // tokens that hide
		part := rapid.Float64Range(0, 1)
		for range rapid.IntRange(100, 600).Draw(t, "n") {
			work := rapid.IntRange(1, free).Draw(t, "work")
			l.FirstToken(float64(work), slow*(prior.PrefillBase+part.Draw(t, "wait")*prior.StepBase))
		}
		if r := l.Rates().PrefillRate; r > 2*prior.PrefillRate/slow {
			t.Fatalf("believed to prefill %.0f tokens/s, the truth is %.0f", r, prior.PrefillRate/slow)
		}
	})
}

// TestAnOverheadIsNoSlownessOfPrompts: what an engine's server, a tokeniser or a proxy adds to every first token is not taken for
// prompt tokens that take longer.
func TestAnOverheadIsNoSlownessOfPrompts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := PriorFor(rapid.SampledFrom([]string{"L4", "A100"}).Draw(t, "gpu"), "llama-3.1-8b").Rates
		l := NewLearner(prior)
		over := rapid.Float64Range(0, 0.1).Draw(t, "overhead")
		long, short := rapid.IntRange(3000, 8000), rapid.IntRange(20, 300)
		for i := range 600 {
			work := short.Draw(t, "short")
			if i%5 == 0 {
				work = long.Draw(t, "long")
			}
			l.FirstToken(float64(work), over+prior.PrefillBase+float64(work)/prior.PrefillRate)
		}
		if r := l.Rates().PrefillRate; r < 0.85*prior.PrefillRate || r > 1.15*prior.PrefillRate {
			t.Fatalf("with %.0f ms more to every first token it is believed to prefill %.0f tokens/s, the truth is %.0f", 1000*over, r, prior.PrefillRate)
		}
	})
}
