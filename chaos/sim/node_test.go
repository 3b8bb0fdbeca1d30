package sim

import (
	"strings"
	"testing"
	"time"
)

// cutOff is a full virginia, some of whose clients are sent elsewhere, that is cut off from the rest for twenty seconds.
func cutOff(t *testing.T, nodes ...string) *Result {
	s := around(t, 14, .8, .1, .1)
	s.Steering = Steering{On: true, TTL: 5 * time.Second, Nodes: nodes}
	s.Duration = 70 * time.Second
	s.Faults = []Fault{{At: 30 * time.Second, For: 20 * time.Second, Kind: Partition, Region: "virginia"}}
	return play(t, s)
}

// TestACutOffRegionServesItsOwn: its node of the global tier hears nobody but its own gateway, and sends its clients there.
// Where it has no node, resolvers go on with what they were told, and those who were sent away reach nobody.
func TestACutOffRegionServesItsOwn(t *testing.T) {
	with, without := cutOff(t), cutOff(t, "frankfurt", "tokyo")
	t.Logf("with a node of its own %+v, without %+v", with.All, without.All)
	if lost := without.All.Reasons[unreachable]; lost < 5 {
		t.Errorf("%d of %d reach nobody where the region has no node: nobody was sent away, and the test is without effect", lost, without.All.Sent)
	}
	if lost := with.All.Reasons[unreachable]; lost > 0 {
		t.Errorf("%d of %d reach nobody though the region has a node of its own", lost, with.All.Sent)
	}
}

// TestTheGlobalTierWithoutItsLeader: the first node goes with its region; the others lead, plan and answer on.
func TestTheGlobalTierWithoutItsLeader(t *testing.T) {
	plans := func(nodes ...string) int64 {
		s := around(t, 9, .2, .6, .2)
		s.Steering = Steering{On: true, TTL: 5 * time.Second, Nodes: nodes}
		s.Duration = 70 * time.Second
		s.Faults = []Fault{{At: 20 * time.Second, Kind: RegionDead, Region: "virginia"}}
		r := play(t, s)
		t.Logf("nodes %v: %d plans, %+v, good %.3f", nodes, r.Plans, r.All, r.Attainment)
		return int64(r.Plans)
	}
	if three, one := plans(), plans("virginia"); three <= one {
		t.Errorf("%d plans with three nodes, %d with the one that died", three, one)
	}
}

func TestNodesMustBeRegions(t *testing.T) {
	for _, nodes := range [][]string{{"oslo"}, {"tokyo", "tokyo"}} {
		s := around(t, 9, 1)
		s.Steering = Steering{On: true, Nodes: nodes}
		if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "each once") {
			t.Errorf("%v: %v", nodes, err)
		}
	}
}
