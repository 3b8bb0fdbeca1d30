package global

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// Gateways that the spec does not declare are not named to peers, however many of them run in a declared region.
func TestPeersNameOnlyDeclaredGateways(t *testing.T) {
	v, now := newStaticSnapshot(t), time.Now()
	book := capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	put := func(region, gateway string) {
		s := summaryWithCapacity(10000, 8)
		s.Path, s.Boot, s.Seq, s.Endpoint = capacity.Path{Region: region, Instance: gateway}, 1, 1, "127.0.0.1:7400"
		book.PutSummary(s, now)
	}
	put("tokyo", "gt")
	put("virginia", "gv")
	for i := range 65 {
		put("tokyo", fmt.Sprint("other", i))
	}
	v = testSnapshot(v.policy, &consensus.State{}, book.BuildView(now), soloVotes(), now, true)
	found := false
	for _, p := range v.ListPeers(v.RegionIndex("virginia"), now) {
		if p.Region != "tokyo" {
			continue
		}
		if found = true; len(p.Gateways) != 1 || p.Gateways[0].Name != "gt" {
			t.Errorf("tokyo has %v", p.Gateways)
		}
	}
	if !found {
		t.Error("tokyo is no peer")
	}
}

// Steering supports every region that a spec may declare.
func TestSpecAndSteeringHaveTheSameRegionLimit(t *testing.T) {
	if spec.MaxRegions > steer.MaxRegions {
		t.Errorf("a spec may have %d regions, %d can be steered", spec.MaxRegions, steer.MaxRegions)
	}
}

// TestCheckSpecCompilesTheTable: a spec with the maximum number of regions and equal weights passes the check before
// the Raft log and becomes a nodePolicy, whose table the snapshotBuilder compiles on every node.
func TestCheckSpecCompilesTheTable(t *testing.T) {
	for _, n := range []int{200, 201, steer.MaxRegions} {
		var regions, weights strings.Builder
		for r := range n {
			fmt.Fprintf(&regions, "  - {name: r%03d, place: {lat: 39, lon: 8}, gateways: [{name: g, addresses: [10.0.1.%d], url: \"http://10.0.1.%d:8080\"}]}\n", r, r, r)
			fmt.Fprintf(&weights, "      r%03d: 0.1\n", r)
		}
		text := "zone:\n  name: api.example.\n  nameservers: [{name: ns1.api.example., addresses: [10.0.0.1]}]\nservices:\n  - name: chat.api.example.\n    mode: weighted\n    weights:\n" +
			weights.String() + "regions:\n" + regions.String() + "models:\n  - name: m1\n"
		if err := checkSpec(nil, []byte(text)); err != nil {
			t.Fatalf("%d regions: %v", n, err)
		}
	}
}

// testHeavyHitterPinned has one network demand four tenths of a cell whose demand is twice its region's capacity. The
// network is pinned, every node answers it alike, and explain shows the pin.
func (p *testFleet) testHeavyHitterPinned(t *testing.T) {
	s := *summaryWithCapacity(10000, 8)
	client := netip.MustParseAddr(clientAddrs["virginia"])
	cell := geo.CellName(p.nodes[0].cfg.Atlas.Locate(client).Cell)
	name := strings.TrimSuffix(testService, ".")
	s.Demand = []capacity.CellDemand{{Service: name, Model: "m1", Cell: cell, TokensPerSec: 17000}}
	s.Networks = []capacity.ClientNetwork{{Service: name, Cell: cell, Number: capacity.NetworkNumber(client), TokensPerSec: 6800}}
	g := p.gateways["virginia"]
	g.summary.Store(&s)
	g.child.SummarizeNow()
	defer g.child.SummarizeNow()
	defer g.summary.Store(summaryWithCapacity(10000, 8))
	for _, n := range p.nodes {
		testkit.Eventually(t, n.cfg.Name+" has a plan that pins the network", func() bool {
			svc := n.snapshot.Load().Plan.FindService(testService)
			return svc != nil && len(svc.Rows) == 1 && len(svc.Rows[0].Pins) == 1 && svc.Rows[0].Pins[0].Network == capacity.NetworkNumber(client)
		})
	}
	c := p.adminClient(p.nodes[1])
	a, err := c.GetPlan(t.Context(), 0)
	if err != nil || len(a.Services[0].Rows) != 1 || len(a.Services[0].Rows[0].Pinned) != 1 || a.Services[0].Rows[0].Pinned[0].Network != "192.0.2.0/24" {
		t.Fatalf("the plan is shown as %+v, %v", a, err)
	}
	to := a.Services[0].Rows[0].Pinned[0].Region
	for _, n := range p.nodes {
		testkit.Eventually(t, "every node sends the network to "+to, func() bool {
			v := n.snapshot.Load()
			return v.AnswerService(0, client).Addrs[0] == testGatewayAddrs[to] && v.PickRegion(0, v.atlas.Locate(client).Cell, client, steer.RegionSet{}).Reason == steer.ReasonPinned
		})
	}
	x, err := c.ExplainRequest(t.Context(), admin.ExplainQuery{From: client.String(), Model: "m1"})
	if err != nil || len(x.Records) == 0 || x.Records[0].Reason != "pinned" || !strings.Contains(strings.Join(x.Records[0].Notes, "\n"), "pinned: heavy network 192.0.2.0/24") {
		t.Errorf("explained as %+v, %v", x, err)
	}
}

func TestNoPinsWhileAVoterCannotReadThem(t *testing.T) {
	b := newPeerReports(func() {})
	voters := []string{"g1", "g2", "g3"}
	if b.allReadPlanVersion(steer.PlanVersion, "g1", voters) {
		t.Error("no report")
	}
	b.putReport("g2", []byte(`{"settled":true,"heard":[],"plans":3}`))
	b.putReport("g3", []byte(`{"settled":true,"heard":[]}`))
	if b.allReadPlanVersion(steer.PlanVersion, "g1", voters) {
		t.Error("one is of a release that does not report plan versions")
	}
	b.putReport("g3", []byte(`{"settled":true,"heard":[],"plans":3}`))
	if !b.allReadPlanVersion(steer.PlanVersion, "g1", voters) || !b.allReadPlanVersion(steer.PlanVersion, "g1", []string{"g1"}) {
		t.Error("all read it")
	}
}

func TestDirectivesHideClientNetworks(t *testing.T) {
	v := newStaticSnapshot(t)
	v.Regions[0].Group.Summary.Networks = []capacity.ClientNetwork{{Service: testService, Cell: "c", Number: 1}}
	for _, p := range v.ListPeers(1, v.MadeAt) {
		if len(p.Summary.Networks) > 0 || len(p.Summary.Demand) > 0 || len(p.Summary.RTTs) > 0 {
			t.Errorf("%s receives %+v", p.Region, p.Summary)
		}
	}
}
