package global

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// testHeavy has one network ask for four tenths of a cell that asks for twice what its region has. It is pinned, every
// node answers it alike, and explain says so.
func (p *planet) testHeavy(t *testing.T) {
	s := *capacityOf(10000, 8)
	client := netip.MustParseAddr(clients["virginia"])
	cell := geo.CellName(p.nodes[0].cfg.Atlas.Locate(client).Cell)
	name := strings.TrimSuffix(service, ".")
	s.Demand = []capacity.Demand{{Service: name, Model: "m1", Cell: cell, TokensPerSec: 17000}}
	s.Networks = []capacity.Network{{Service: name, Cell: cell, Number: capacity.NetworkNumber(client), TokensPerSec: 6800}}
	g := p.gates["virginia"]
	g.summary.Store(&s)
	g.child.Wake()
	defer g.child.Wake()
	defer g.summary.Store(capacityOf(10000, 8))
	for _, n := range p.nodes {
		eventually(t, 10*time.Second, n.cfg.Name+" has a plan that pins the network", func() bool {
			svc := n.view.Load().plan.Service(service)
			return svc != nil && len(svc.Rows) == 1 && len(svc.Rows[0].Pins) == 1 && svc.Rows[0].Pins[0].Network == capacity.NetworkNumber(client)
		})
	}
	c := p.admin(p.nodes[1])
	a, err := c.Plan(t.Context(), 0)
	if err != nil || len(a.Services[0].Rows) != 1 || len(a.Services[0].Rows[0].Pinned) != 1 || a.Services[0].Rows[0].Pinned[0].Network != "192.0.2.0/24" {
		t.Fatalf("the plan is shown as %+v, %v", a, err)
	}
	to := a.Services[0].Rows[0].Pinned[0].Region
	for _, n := range p.nodes {
		eventually(t, 5*time.Second, "every node sends the network to "+to, func() bool {
			v := n.view.Load()
			return v.Answer(0, client).Addrs[0] == gatewayAddr[to] && v.pick(0, v.atlas.Locate(client).Cell, client, steer.Set{}).Reason == steer.Pinned
		})
	}
	x, err := c.Explain(t.Context(), admin.ExplainQuery{From: client.String(), Model: "m1"})
	if err != nil || len(x.Records) == 0 || x.Records[0].Reason != "pinned" || !strings.Contains(strings.Join(x.Records[0].Notes, "\n"), "pinned: heavy network 192.0.2.0/24") {
		t.Errorf("explained as %+v, %v", x, err)
	}
}

func TestNobodyPinsForNodesThatDoNotReadIt(t *testing.T) {
	b := newBench(func() {})
	voters := []string{"g1", "g2", "g3"}
	if b.reads(steer.PlanVersion, "g1", voters) {
		t.Error("nothing was said")
	}
	b.take("g2", []byte(`{"settled":true,"heard":[],"plans":3}`))
	b.take("g3", []byte(`{"settled":true,"heard":[]}`))
	if b.reads(steer.PlanVersion, "g1", voters) {
		t.Error("one is of a release that says nothing of plans")
	}
	b.take("g3", []byte(`{"settled":true,"heard":[],"plans":3}`))
	if !b.reads(steer.PlanVersion, "g1", voters) || !b.reads(steer.PlanVersion, "g1", []string{"g1"}) {
		t.Error("all read it")
	}
}

func TestDirectivesTellNobodysNetworks(t *testing.T) {
	v := stillView(t)
	v.regions[0].group.Summary.Networks = []capacity.Network{{Service: service, Cell: "c", Number: 1}}
	for _, p := range v.peers(1, v.made) {
		if len(p.Summary.Networks) > 0 || len(p.Summary.Demand) > 0 || len(p.Summary.RTTs) > 0 {
			t.Errorf("%s is told of %+v", p.Region, p.Summary)
		}
	}
}
