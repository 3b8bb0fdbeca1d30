package global

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// testUndeclaredGateway gives Virginia a second gateway, which the spec does not list.
func (p *testFleet) testUndeclaredGateway(t *testing.T) {
	g := p.newFakeGateway("virginia", "gv2")
	defer func() {
		g.stopChild()
		testkit.Eventually(t, "the second gateway is lost", func() bool { return p.gatewayState(t, "gv2").State == admin.StateUnreachable })
	}()
	testkit.Eventually(t, "the second gateway is reachable", func() bool { return p.gatewayState(t, "gv2").State == admin.StateFresh })
	for _, name := range []string{"gv", "gv2"} {
		if got := p.gatewayState(t, name); got.InFlight != 7 || got.Endpoint == "" || got.State != admin.StateFresh || got.AgeMS > 1000 {
			t.Errorf("gateway %s is %+v", name, got)
		}
	}
	p.gateways["virginia"].muted.Store(true)
	defer p.gateways["virginia"].muted.Store(false)
	r := p.regionStatus(t, "virginia")
	if len(r.Zones) != 1 || len(r.Zones[0].Workers) != 2 || r.Note != "gv did not answer" {
		t.Errorf("with one of two gateways mute the region is %+v", r)
	}
}

func (p *testFleet) regionStatus(t *testing.T, name string) admin.RegionStatus {
	t.Helper()
	st, err := p.adminClient(p.nodes[0]).GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range st.Regions {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("status lists no region %s", name)
	return admin.RegionStatus{}
}

func (p *testFleet) gatewayState(t *testing.T, name string) admin.GatewayStatus {
	t.Helper()
	for _, g := range p.regionStatus(t, "virginia").Gateways {
		if g.Name == name {
			return g
		}
	}
	return admin.GatewayStatus{}
}

func TestRegionStatusMergesGatewayAnswers(t *testing.T) {
	zone := func(name, instance, state, note string) admin.ZoneStatus {
		return admin.ZoneStatus{Name: name, Instance: instance, State: state, Note: note}
	}
	gateway := func(name string) capacity.ChildSummary {
		return capacity.ChildSummary{Summary: &capacity.Summary{Path: capacity.Path{Region: "r", Instance: name}}}
	}
	out := admin.RegionStatus{Gateways: []admin.GatewayStatus{{Name: "g1"}, {Name: "g2"}, {Name: "g3"}}}
	mergeRegionStatus(&out, []capacity.ChildSummary{gateway("g1"), gateway("g2"), gateway("g3")}, []*admin.RegionStatus{
		nil,
		{
			SpecVersion: 4, Gateways: []admin.GatewayStatus{{Name: "g2", InFlight: 2}, {Name: "g3", InFlight: 99}},
			Zones: []admin.ZoneStatus{zone("a", "", admin.StateUnknown, ""), zone("b", "l1", admin.StateStale, ""), zone("b", "l2", admin.StateFresh, "mute")},
		},
		{
			SpecVersion: 3, Gateways: []admin.GatewayStatus{{Name: "g3", InFlight: 3}},
			Zones: []admin.ZoneStatus{zone("a", "l0", admin.StateUnreachable, ""), zone("b", "l1", admin.StateFresh, ""), zone("b", "l2", admin.StateFresh, ""), zone("c", "", admin.StateUnknown, "")},
		},
	})
	want := admin.RegionStatus{
		SpecVersion: 4, Note: "g1 did not answer",
		Gateways: []admin.GatewayStatus{{Name: "g1"}, {Name: "g2", InFlight: 2}, {Name: "g3", InFlight: 3}},
		Zones:    []admin.ZoneStatus{zone("a", "l0", admin.StateUnreachable, ""), zone("b", "l1", admin.StateFresh, ""), zone("b", "l2", admin.StateFresh, ""), zone("c", "", admin.StateUnknown, "")},
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
}
