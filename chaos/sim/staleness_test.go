package sim

import (
	"slices"
	"testing"
	"time"
)

// TestDecisionsDoNotDependOnFutureFaults: two runs that differ by a fault from one time on decide alike until then. A
// decider with information from the future, or not yet received, would not.
func TestDecisionsDoNotDependOnFutureFaults(t *testing.T) {
	const from = 12 * time.Second
	run := func(faults ...Fault) (before, all []PlacementDecision) {
		s := threeRegionScenario(t, 16, .8, .1, .1)
		s.Duration, s.Steering, s.Faults = 18*time.Second, SteeringConfig{Enabled: true, TTL: 5 * time.Second}, faults
		s.OnDecision = func(d PlacementDecision) {
			if all = append(all, d); d.At < from {
				before = all
			}
		}
		runScenario(t, s)
		return before, all
	}
	first, all := run()
	for name, f := range map[string]Fault{
		"slow":    {At: from, Kind: WorkerSlow, Factor: 5, Region: "virginia", Zone: "a"},
		"dead":    {At: from, Kind: WorkerDead, Region: "virginia", Zone: "a"},
		"zone":    {At: from, Kind: ZoneDead, Region: "virginia", Zone: "b"},
		"region":  {At: from, Kind: RegionDead, Region: "frankfurt"},
		"cut off": {At: from, Kind: Partition, Region: "virginia"},
	} {
		before, after := run(f)
		if len(first) < 50 || !slices.Equal(first, before) {
			t.Errorf("%s: %d and %d decisions before it, and they differ", name, len(first), len(before))
		}
		if slices.Equal(all, after) {
			t.Errorf("%s: nothing changed after it either: the fault is without effect", name)
		}
	}
}

// TestStaleScrapesLoseNoRequest: a worker's readings arrive Delay later, and change nothing before.
func TestStaleScrapesLoseNoRequest(t *testing.T) {
	for _, policy := range []string{"predictive", "least_queue"} {
		fresh, old := chatScenario(t, 4, 10, 6), chatScenario(t, 4, 10, 6)
		fresh.Policy, old.Policy = policy, policy
		old.Staleness = ScrapeStaleness{Interval: 100 * time.Millisecond, Delay: 500 * time.Millisecond}
		a, b := runScenario(t, fresh), runScenario(t, old)
		x, _ := a.TTFT.Quantile(.99)
		y, _ := b.TTFT.Quantile(.99)
		t.Logf("%s: p99 %v fresh, %v by pages half a second old", policy, x, y)
		if a.All.Completed != a.All.Sent || b.All.Completed != b.All.Sent {
			t.Errorf("%s: %+v, %+v", policy, a.All, b.All)
		}
	}
}
