package experiment

import (
	"testing"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// TestServiceGapWhileBothTenantsWait: the largest difference within an interval in which two always wait, without
// anything before or after.
func TestServiceGapWhileBothTenantsWait(t *testing.T) {
	at := func(pairs ...int64) sim.FleetSample {
		var s sim.FleetSample
		for i := 0; i < len(pairs); i += 3 {
			s.Tenants = append(s.Tenants, sim.TenantService{PromptTokens: pairs[i], OutputTokens: pairs[i+1], Waiting: int(pairs[i+2])})
		}
		return s
	}
	r := &sim.RunResult{Series: []sim.FleetSample{
		at(0, 0, 1, 0, 0, 0),          // the second has nothing waiting
		at(9000, 0, 1, 0, 0, 1),       // both wait from here on
		at(9500, 100, 2, 100, 50, 2),  // the first has had 700, the second 200
		at(9500, 100, 2, 1100, 50, 2), // the second 1,000 more
		at(9500, 100, 0, 9000, 50, 2), // the first has nothing waiting
	}}
	if gap, why := maxServiceGap(r); gap != 1000 || why != "" {
		t.Errorf("a gap of %v (%s), and not of 1000", gap, why)
	}
	r.Series = r.Series[:2]
	if _, why := maxServiceGap(r); why == "" {
		t.Error("they never waited together for any time, and there is a gap")
	}
	r.KVTokens, r.LongestPrompt = 500, 300
	if bound, why := serviceBound(r); bound != 2000 || why != "" {
		t.Errorf("a bound of %v (%s)", bound, why)
	}
}
