package perfmodel

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
