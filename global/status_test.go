package global

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
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

// readyzVerbose returns a node's answer to /readyz?verbose.
func readyzVerbose(t *testing.T, s *Server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Admin().MetricsAddr().String()+"/readyz?verbose", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReadyzShowsBasisAndAge: the sources of plan and capacity, and the age of each, to the tenth of a second.
func TestReadyzShowsBasisAndAge(t *testing.T) {
	frame := newStaticSnapshot(t).policy
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.newParts()
		says := func(want ...string) {
			t.Helper()
			var lines []string
			for _, b := range s.status.describeBasis() {
				lines = append(lines, b.String())
			}
			if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("answer\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		}
		says("plan from none: no spec is in force")

		in := newSummaryStore(func() {})
		begun := time.Now()
		look := func(from stateSource, stale bool) {
			now := time.Now()
			v := testSnapshot(frame, &consensus.State{PlanEpoch: 7}, in.capacityView(now), soloVotes(), now, true)
			v.planSince, v.source, v.stale = begun, from, stale
			s.snapshot.Store(v)
		}
		look(specFileState, true)
		time.Sleep(1500 * time.Millisecond)
		says("plan from file, 1.5s old: the spec file, not agreed by the cluster; not confirmed by a leader",
			"capacity from none: virginia has never reported", "capacity from none: frankfurt has never reported", "capacity from none: tokyo has never reported")

		hear := func(region string) {
			c := summaryWithCapacity(10_000, 8)
			c.Path, c.Boot, c.Seq = capacity.Path{Region: region, Instance: "gw"}, 1, 1
			in.handleSummary(identity.ID{}, c)
		}
		hear("virginia")
		time.Sleep(800 * time.Millisecond)
		hear("tokyo")
		look(backupState, false)
		says("plan from disk, 2.3s old: spec v1, plan 7, what was agreed when this node wrote it down",
			"capacity from uplink, 800ms old: virginia is stale", "capacity from none: frankfurt has never reported", "capacity from uplink, 0s old: tokyo is fresh")

		time.Sleep(time.Minute)
		look(agreedState, true)
		time.Sleep(200 * time.Millisecond) // the ages in a snapshot grow until the next one
		says("plan from raft, 1m2.5s old: spec v1, plan 7; not confirmed by a leader",
			"capacity from uplink, 1m1s old: virginia is lost; its last report is used if no other region is left",
			"capacity from none: frankfurt has never reported",
			"capacity from uplink, 1m0.2s old: tokyo is lost; its last report is used if no other region is left")
	})
}

// TestReadyRequiresATicketKey: a node with an agreed spec and no key yet would answer requests with 503. A node that
// answers from its file has no key to wait for, and its DNS answers must go on.
func TestReadyRequiresATicketKey(t *testing.T) {
	frame, now := newStaticSnapshot(t).policy, time.Now()
	key := []consensus.TicketKey{{Secret: []byte("k"), At: now}}
	for _, c := range []struct {
		from  stateSource
		keys  []consensus.TicketKey
		ready bool
	}{{agreedState, nil, false}, {agreedState, key, true}, {specFileState, nil, true}, {backupState, nil, true}} {
		s := &Server{}
		if s.Ready() == nil {
			t.Error("a node without a spec is ready")
		}
		v := testSnapshot(frame, &consensus.State{TicketKeys: c.keys}, newSummaryStore(func() {}).capacityView(now), soloVotes(), now, true)
		v.source = c.from
		s.snapshot.Store(v)
		if err := s.Ready(); (err == nil) != c.ready {
			t.Errorf("with a state from %v and %d keys: %v", c.from, len(c.keys), err)
		}
	}
}
