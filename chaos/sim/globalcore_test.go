package sim

import (
	"strings"
	"testing"
	"time"
)

// runPartitioned runs a full virginia, some of whose clients are sent elsewhere, that is disconnected from the rest
// for 20 s.
func runPartitioned(t *testing.T, nodes ...string) *RunResult {
	s := threeRegionScenario(t, 14, .8, .1, .1)
	s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, Nodes: nodes}
	s.Duration = 70 * time.Second
	s.Faults = []Fault{{At: 30 * time.Second, For: 20 * time.Second, Kind: Partition, Region: "virginia"}}
	return runScenario(t, s)
}

// TestPartitionedRegionServesItsOwnClients: its global node has reports from its own gateway only, and sends its
// clients there. Without a node in the region, resolvers continue with cached answers, and clients that were sent
// elsewhere reach no gateway.
func TestPartitionedRegionServesItsOwnClients(t *testing.T) {
	with, without := runPartitioned(t), runPartitioned(t, "frankfurt", "tokyo")
	t.Logf("with a node of its own %+v, without %+v", with.All, without.All)
	if lost := without.All.Reasons[codeUnreachable]; lost < 5 {
		t.Errorf("%d of %d reach no gateway where the region has no node: no client was sent elsewhere, and the test is without effect", lost, without.All.Sent)
	}
	if lost := with.All.Reasons[codeUnreachable]; lost > 0 {
		t.Errorf("%d of %d reach no gateway though the region has a node of its own", lost, with.All.Sent)
	}
}

// TestGlobalTierPlansAfterLeaderRegionDies: the first node fails with its region; the others lead, plan and answer.
func TestGlobalTierPlansAfterLeaderRegionDies(t *testing.T) {
	plans := func(nodes ...string) int64 {
		s := threeRegionScenario(t, 9, .2, .6, .2)
		s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, Nodes: nodes}
		s.Duration = 70 * time.Second
		s.Faults = []Fault{{At: 20 * time.Second, Kind: RegionDead, Region: "virginia"}}
		r := runScenario(t, s)
		t.Logf("nodes %v: %d plans, %+v, good %.3f", nodes, r.Plans, r.All, r.Attainment)
		return int64(r.Plans)
	}
	if three, one := plans(), plans("virginia"); three <= one {
		t.Errorf("%d plans with three nodes, %d with the one that died", three, one)
	}
}

func TestNodesMustBeRegions(t *testing.T) {
	for _, nodes := range [][]string{{"oslo"}, {"tokyo", "tokyo"}} {
		s := threeRegionScenario(t, 9, 1)
		s.Steering = SteeringConfig{Enabled: true, Nodes: nodes}
		if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "each once") {
			t.Errorf("%v: %v", nodes, err)
		}
	}
}
