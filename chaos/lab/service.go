package lab

import (
	"math"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// outputWeight is what an output token counts, in prompt tokens.
const outputWeight = 2

// had is a tenant's service by the virtual token counter's measure (VTC, OSDI'24): prompt tokens that had to be computed, and
// twice the output tokens.
func had(s *sim.Service) float64 { return float64(s.Prompt) + outputWeight*float64(s.Output) }

// serviceGap is the most by which the service of two tenants differs in any stretch in which both had requests waiting all
// along.
func serviceGap(r *sim.Result) (float64, string) {
	tenants, most, found := 0, 0.0, false
	for i := range r.Series {
		tenants = max(tenants, len(r.Series[i].Tenants))
	}
	for a := range tenants {
		for b := range a {
			gap, ok := pairGap(r.Series, a, b)
			most, found = max(most, gap), found || ok
		}
	}
	if !found {
		return 0, "no two tenants waited at the same time"
	}
	return most, ""
}

// pairGap is that of two tenants. found is false where they never waited together for two samples in a row.
func pairGap(series []sim.Sample, a, b int) (gap float64, found bool) {
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for i := range series {
		t := series[i].Tenants
		if max(a, b) >= len(t) || t[a].Waiting == 0 || t[b].Waiting == 0 {
			low, high, n = math.Inf(1), math.Inf(-1), 0
			continue
		}
		d := had(&t[a]) - had(&t[b])
		low, high = min(low, d), max(high, d)
		if n++; n > 1 {
			gap, found = max(gap, high-low), true
		}
	}
	return gap, found
}

// serviceBound is what that may be with one queue before all engines: 2 U (VTC's theorem 4.4), where U is the longest prompt
// or twice the tokens that all engines' batches hold, whichever is more. One queue gossips with nobody: no error is added.
// It is wide where batches are worth long stretches of the engines' time: in fewer of those no order can break it.
func serviceBound(r *sim.Result) (float64, string) {
	return positive(2*max(float64(r.LongestPrompt), outputWeight*float64(r.KVTokens)), "no engine says what its cache holds")
}
