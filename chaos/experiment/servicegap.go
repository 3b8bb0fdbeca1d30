package experiment

import (
	"math"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// outputTokenWeight is the weight of an output token, in prompt tokens.
const outputTokenWeight = 2

// serviceReceived is a tenant's service by the measure of virtual token counters (VTC, OSDI'24): prompt tokens that
// had to be computed, and twice the output tokens.
func serviceReceived(s *sim.TenantService) float64 {
	return float64(s.PromptTokens) + outputTokenWeight*float64(s.OutputTokens)
}

// maxServiceGap is the largest difference of two tenants' service in any interval in which both had requests waiting
// all the time.
func maxServiceGap(r *sim.RunResult) (float64, string) {
	tenants, most, found := 0, 0.0, false
	for i := range r.Series {
		tenants = max(tenants, len(r.Series[i].Tenants))
	}
	for a := range tenants {
		for b := range a {
			gap, ok := pairServiceGap(r.Series, a, b)
			most, found = max(most, gap), found || ok
		}
	}
	if !found {
		return 0, "no two tenants waited at the same time"
	}
	return most, ""
}

// pairServiceGap is that of two tenants. found is false if they never both waited for two samples in a row.
func pairServiceGap(series []sim.FleetSample, a, b int) (gap float64, found bool) {
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for i := range series {
		t := series[i].Tenants
		if max(a, b) >= len(t) || t[a].Waiting == 0 || t[b].Waiting == 0 {
			low, high, n = math.Inf(1), math.Inf(-1), 0
			continue
		}
		d := serviceReceived(&t[a]) - serviceReceived(&t[b])
		low, high = min(low, d), max(high, d)
		if n++; n > 1 {
			gap, found = max(gap, high-low), true
		}
	}
	return gap, found
}

// serviceBound is the bound of it with one queue for all engines: 2 U (VTC's theorem 4.4), where U is the longest
// prompt or twice the tokens that all engines' batches hold, whichever is more. With a single queue no
// synchronization error is added. It is wide if batches take much of the engines' time: no order of requests can
// exceed it in short intervals.
func serviceBound(r *sim.RunResult) (float64, string) {
	return requirePositive(2*max(float64(r.LongestPrompt), outputTokenWeight*float64(r.KVTokens)), "no engine reports the size of its cache")
}
