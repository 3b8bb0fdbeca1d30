package global

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink/abusetest"
)

// freezeSending stops a gateway in the middle of sending. Its sessions stay open, and its transport answers pings.
func (g *fakeGateway) freezeSending() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = make(chan struct{})
}

func (g *fakeGateway) resumeSending() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != nil {
		close(g.frozen)
		g.frozen = nil
	}
}

func (g *fakeGateway) awaitUnfrozen() {
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (g *fakeGateway) blockLinks(cut bool) {
	for _, l := range g.links {
		l.blocked.Store(cut)
	}
}

// TestSilentRegionBecomesUnreachable loses a region silently: no session is closed, no goodbye is sent.
func TestSilentRegionBecomesUnreachable(t *testing.T) {
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client has its own region", p.allNearest)
	for name, c := range map[string]struct{ fall, rise func(*fakeGateway) }{
		"frozen": {(*fakeGateway).freezeSending, (*fakeGateway).resumeSending},
		"cut":    {func(g *fakeGateway) { g.blockLinks(true) }, func(g *fakeGateway) { g.blockLinks(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := p.gateways["tokyo"]
			defer c.rise(g)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			asked, failed, done := floodQueries(ctx, p.nodes[0], clientAddrs["tokyo"])
			c.fall(g)
			gone := testkit.Eventually(t, "no node answers with a region that has fallen silent", func() bool {
				for _, s := range p.liveNodes() {
					if r := answeredRegion(s, clientAddrs["tokyo"]); r != "virginia" && r != "frankfurt" {
						return false
					}
				}
				return true
			})
			timed.AssertBetween(t, "a silent region's loss shown everywhere", gone, 500*time.Millisecond, 2*time.Second)
			if !p.allAnswerRegion(clientAddrs["virginia"], "virginia") || !p.allAnswerRegion(clientAddrs["frankfurt"], "frankfurt") {
				t.Error("clients of other regions moved")
			}
			for _, s := range p.liveNodes() {
				for _, peer := range s.directives.buildDirective(capacity.Path{Region: "virginia", Instance: "gv"}).Peers {
					if peer.Region == "tokyo" && len(peer.Gateways) != 0 {
						t.Errorf("%s offers gateways of a silent region to spill to", s.cfg.Name)
					}
				}
			}
			testkit.Eventually(t, "the plan does without it", func() bool {
				return strings.Join(p.nodes[0].snapshot.Load().Plan.Without, " ") == "tokyo"
			})
			c.rise(g)
			// A gateway that was cut off for this long still has its session, or dials within its backoff.
			back := testkit.Eventually(t, "it is answered again when it reports", func() bool { return p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") })
			timed.AssertWithin(t, "its return shown everywhere", back, 6*time.Second)
			testkit.Eventually(t, "enough queries were sent", func() bool { return asked.Load() >= 20 })
			stop()
			done.Wait()
			if failed.Load() != 0 {
				t.Errorf("%d of %d queries failed", failed.Load(), asked.Load())
			}
			testkit.Eventually(t, "the plan counts on it again", func() bool { return len(p.nodes[0].snapshot.Load().Plan.Without) == 0 })
		})
	}
}

// TestGatewayWithCorrectedClockIsAccepted: a gateway whose clock was a day and a half ahead, and is right again after
// a restart, is accepted by every node at once.
func TestGatewayWithCorrectedClockIsAccepted(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	p.gateways["tokyo"].stopChild()
	certs := p.issueCerts(identity.ID{Role: identity.RoleGateway, Region: "tokyo", Name: "gt"})
	ahead := uint64(time.Now().Add(36 * time.Hour).UnixNano())
	for _, s := range p.nodes {
		if err := abusetest.SendFutureBoot(t.Context(), s.UplinkAddr().String(), certs, ahead); err != nil {
			t.Fatal(err)
		}
	}
	p.gateways["tokyo"] = p.newFakeGateway("tokyo", "gt")
	p.awaitAllRegions()
}

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
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client has its own region", p.allNearest)
	lead := p.awaitLeader()
	g := p.gateways["tokyo"]
	r := lead.snapshot.Load().RegionIndex("tokyo")
	g.links[lead.cfg.Name].blocked.Store(true)
	testkit.Eventually(t, "the leader no longer reaches the region", func() bool { return lead.snapshot.Load().Regions[r].IsUnreachable() })
	end := time.Now().Add(2 * time.Second)
	testkit.Eventually(t, "two seconds pass in which the region is kept", func() bool {
		v := lead.snapshot.Load()
		if !p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") || v.UnreachableByAll.Has(r) || v.Dead.Has(r) || len(v.Plan.Without) != 0 {
			t.Fatalf("one isolated node was enough: gone %v, dead %v, plan without %v, reached by %v", v.UnreachableByAll.Has(r), v.Dead.Has(r), v.Plan.Without, v.Regions[r].ReachedBy)
		}
		return time.Now().After(end)
	})
	st, err := p.adminClient(lead).GetStatus(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "\n"), "tokyo: unreachable from this node, reachable from") {
		t.Errorf("status of the isolated node notes %q (%v)", st.Notes, err)
	}
	second := ""
	for _, s := range p.nodes {
		if s != lead && second == "" {
			second = s.cfg.Name
			g.links[second].blocked.Store(true)
		}
	}
	testkit.Eventually(t, "two of three plan without it", func() bool {
		p.returnLeadership(lead)
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
