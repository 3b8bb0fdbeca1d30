package global

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// soloVotes are the votes of a cluster of one node.
func soloVotes() *liveness.Votes {
	return &liveness.Votes{Self: "g1", Voters: []string{"g1"}}
}

// testSnapshot returns a snapshot without plan and table.
func testSnapshot(f *nodePolicy, st *consensus.State, children *capacity.CapacityView, votes *liveness.Votes, now time.Time, settled bool) *nodeSnapshot {
	in := snapshot.Inputs{Policy: f.SteeringPolicy, Drains: toPathDrains(st.Drains), Children: children, Votes: votes, Now: now, Settled: settled}
	return newNodeSnapshot(f, st, snapshot.NewSteeringSnapshot(in))
}

// TestOneIsolatedNodeKeepsTheRegion cuts a region's gateway off from one node, the leader: no clients move and the
// plan keeps the region. Cut off from two of three, it is removed from the plan, and from all, from every answer.
func TestOneIsolatedNodeKeepsTheRegion(t *testing.T) {
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client has its own region", p.allNearest)
	lead := p.awaitLeader()
	g := p.gateways["tokyo"]
	r := lead.snapshot.Load().RegionIndex("tokyo")
	g.links[lead.cfg.Name].blocked.Store(true)
	testkit.Eventually(t, "the leader no longer reaches the region", func() bool { return lead.snapshot.Load().Regions[r].IsUnreachable() })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		v := lead.snapshot.Load()
		if !p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") || v.UnreachableByAll.Has(r) || v.Dead.Has(r) || len(v.Plan.Without) != 0 {
			t.Fatalf("one isolated node was enough: gone %v, dead %v, plan without %v, reached by %v", v.UnreachableByAll.Has(r), v.Dead.Has(r), v.Plan.Without, v.Regions[r].ReachedBy)
		}
	}
	st, err := p.adminClient(lead).GetStatus(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "\n"), "tokyo: unreachable from this node, reachable from") {
		t.Errorf("status of the deaf node notes %q (%v)", st.Notes, err)
	}
	second := ""
	for _, s := range p.nodes {
		if s != lead && second == "" {
			second = s.cfg.Name
			g.links[second].blocked.Store(true)
		}
	}
	testkit.Eventually(t, "two of three plan without it", func() bool {
		return strings.Join(lead.snapshot.Load().Plan.Without, " ") == "tokyo"
	})
	g.blockLinks(true)
	testkit.Eventually(t, "cut off from all nodes it is in no answer", func() bool {
		return !slices.ContainsFunc(p.liveNodes(), func(s *Server) bool { return !s.snapshot.Load().UnreachableByAll.Has(r) })
	})
	g.blockLinks(false)
	testkit.Eventually(t, "it comes back", func() bool {
		return len(lead.snapshot.Load().Plan.Without) == 0 && p.allAnswerRegion(clientAddrs["tokyo"], "tokyo")
	})
}
