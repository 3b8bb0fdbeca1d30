package lab

import (
	"testing"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// TestServiceGap: the greatest difference within a stretch in which two always wait, and nothing of what came before or after.
func TestServiceGap(t *testing.T) {
	at := func(pairs ...int64) sim.Sample {
		var s sim.Sample
		for i := 0; i < len(pairs); i += 3 {
			s.Tenants = append(s.Tenants, sim.Service{Prompt: pairs[i], Output: pairs[i+1], Waiting: int(pairs[i+2])})
		}
		return s
	}
	r := &sim.Result{Series: []sim.Sample{
		at(0, 0, 1, 0, 0, 0),          // the second waits for nothing
		at(9000, 0, 1, 0, 0, 1),       // from here on both wait
		at(9500, 100, 2, 100, 50, 2),  // the first has had 700, the second 200
		at(9500, 100, 2, 1100, 50, 2), // the second 1,000 more
		at(9500, 100, 0, 9000, 50, 2), // the first waits no more
	}}
	if gap, why := serviceGap(r); gap != 1000 || why != "" {
		t.Errorf("a gap of %v (%s), and not of 1000", gap, why)
	}
	r.Series = r.Series[:2]
	if _, why := serviceGap(r); why == "" {
		t.Error("they never waited together for any time, and there is a gap")
	}
	r.KVTokens, r.LongestPrompt = 500, 300
	if bound, why := serviceBound(r); bound != 2000 || why != "" {
		t.Errorf("a bound of %v (%s)", bound, why)
	}
}
