package global

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// stubNode accepts plans in place of a consensus node.
type stubNode struct {
	state consensus.State
	plans [][]byte
}

func (n *stubNode) State() *consensus.State { return &n.state }

func (n *stubNode) PutPlan(_ context.Context, _ uint64, body []byte, _ consensus.Attribution, _ string) (uint64, error) {
	n.plans = append(n.plans, body)
	return uint64(len(n.plans)), nil
}

// plannerFixture is a planner with a stub node and the inputs of its snapshots.
type plannerFixture struct {
	*planner
	stub    *stubNode
	policy  *nodePolicy
	reports map[string]*capacity.Summary // by region; absent: never reported
	votes   liveness.Votes
	plan    *steer.Plan
	start   time.Time
	now     time.Time
	log     bytes.Buffer
	seq     uint64
}

func newPlannerFixture(t *testing.T) *plannerFixture {
	t.Helper()
	atlas, err := geofiles.OpenAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newNodePolicy(1, []byte(strings.Replace(testSpecText(), "ramp: 0s", "ramp: 30s", 1)), atlas)
	if err != nil {
		t.Fatal(err)
	}
	b := &plannerFixture{
		policy: f, start: time.Unix(1_000_000, 0), stub: &stubNode{state: consensus.State{SpecVersion: 1, Index: 7}},
		reports: map[string]*capacity.Summary{}, votes: liveness.Votes{Self: "g1", Voters: []string{"g1", "g2", "g3"}, Reports: map[string]liveness.PeerReport{}},
	}
	for _, name := range []string{"virginia", "frankfurt", "tokyo"} {
		b.reports[name] = summaryWithCapacity(10_000, 8)
	}
	b.now = b.start.Add(time.Hour)
	s := &Server{peerReports: newPeerReports(func() {}), startedAt: b.start, replan: make(chan struct{}, 1), log: slog.New(slog.NewTextHandler(&b.log, nil)), quotaLeaser: &quotaLeaser{}}
	s.metrics = newNodeMetrics(prometheus.NewRegistry(), s)
	b.planner = &planner{s: s, node: b.stub, input: planinput.NewPreparer()}
	return b
}

// buildSnapshot returns the snapshot that the snapshotBuilder would build from the reports now.
func (b *plannerFixture) buildSnapshot() *nodeSnapshot {
	book := capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	b.seq++
	for name, s := range b.reports {
		x := *s
		x.Path, x.Boot, x.Seq = capacity.Path{Region: name, Instance: b.policy.Spec.FindRegion(name).Gateways[0].Name}, 1, b.seq
		book.PutSummary(&x, b.now)
	}
	q := b.votes
	v := testSnapshot(b.policy, &b.stub.state, book.BuildView(b.now), &q, b.now, b.now.Sub(b.start) > snapshot.StartupGrace)
	v.source, v.Plan = agreedState, b.plan
	v.Table = steer.CompileTable(b.policy.Spec, b.policy.PriorGeo, b.plan)
	return v
}

func (b *plannerFixture) setDemand(region string, tokens int64) {
	cell := b.policy.atlas.Locate(netip.MustParseAddr(clientAddrs[region])).Cell
	b.reports[region].Demand = []capacity.CellDemand{{
		Service: strings.TrimSuffix(testService, "."), Model: "m1", Cell: geo.CellName(cell), TokensPerSec: tokens, RequestsPerSecMilli: 1000,
	}}
}

// setHeavyNetworks sets the rates in tokens/s of heavy networks of the region's own cell, numbered from 1.
func (b *plannerFixture) setHeavyNetworks(region string, tokens ...int64) {
	d := b.reports[region].Demand[0]
	b.reports[region].Networks = nil
	for i, n := range tokens {
		b.reports[region].Networks = append(b.reports[region].Networks, capacity.ClientNetwork{Service: d.Service, Cell: d.Cell, Number: uint64(i + 1), TokensPerSec: n})
	}
}

// TestReasonsNotToPlan has one row for each reason not to plan. Each row alone prevents a plan that would be made
// without it.
func TestReasonsNotToPlan(t *testing.T) {
	reportOf := func(region string) liveness.PeerReport {
		return liveness.PeerReport{Settled: true, Reachable: []string{region + "/x"}}
	}
	for _, c := range []struct {
		name  string
		setup func(b *plannerFixture)
		view  func(v *nodeSnapshot)
		want  int // plans
	}{
		{name: "no reason", want: 1},
		{name: "a region that another node reaches has never reported here", setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.votes.Reports["g2"] = reportOf("tokyo")
		}},
		{name: "a region that two other nodes reach has never reported here", setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.votes.Reports["g2"], b.votes.Reports["g3"] = reportOf("tokyo"), reportOf("tokyo")
		}},
		{name: "a majority does not reach it either", want: 1, setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.votes.Reports["g2"], b.votes.Reports["g3"] = reportOf("tokyo"), liveness.PeerReport{Settled: true}
		}},
		{name: "no node reaches it", want: 1, setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.votes.Reports["g2"], b.votes.Reports["g3"] = liveness.PeerReport{Settled: true}, liveness.PeerReport{Settled: true}
		}},
		{name: "the node has not settled", setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.now = b.start.Add(snapshot.StartupGrace - time.Millisecond)
		}},
		{name: "the node has settled", want: 1, setup: func(b *plannerFixture) {
			delete(b.reports, "tokyo")
			b.now = b.start.Add(snapshot.StartupGrace + time.Millisecond)
		}},
		{name: "the node has not settled, and reaches every region", want: 1, setup: func(b *plannerFixture) { b.now = b.start.Add(time.Millisecond) }},
		{name: "a region's silence proves nothing", setup: func(b *plannerFixture) { b.votes.Suppressed.Add(2) }},
		{name: "the View is of an older spec", view: func(v *nodeSnapshot) { f := *v.SteeringPolicy; f.Version = 0; v.SteeringPolicy = &f }},
		{name: "the View is of an older index", view: func(v *nodeSnapshot) { s := *v.state; s.Index--; v.state = &s }},
		{name: "the View is not of agreed state", view: func(v *nodeSnapshot) { v.source = backupState }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newPlannerFixture(t)
			if c.setup != nil {
				c.setup(b)
			}
			v := b.buildSnapshot()
			if c.view != nil {
				c.view(v)
			}
			b.planner.makePlan(t.Context(), v, b.now)
			if len(b.stub.plans) != c.want {
				t.Errorf("%d plans are made, want %d; log:\n%s", len(b.stub.plans), c.want, b.log.String())
			}
		})
	}
}

// TestPlannerInput has one row for each step between reports and the solver's input.
func TestPlannerInput(t *testing.T) {
	const virginia = 0
	for _, c := range []struct {
		name  string
		setup func(b *plannerFixture) // before the first round
		next  func(b *plannerFixture) // before the second, a second later
		check func(first, second *steer.PlanInput) bool
	}{
		{
			name: "guard: a region with few ready workers is unhealthy",
			next: func(b *plannerFixture) {
				b.reports["virginia"] = summaryWithCapacity(1250, 1)
				b.reports["virginia"].Models[0].Total = 8
			},
			check: func(first, second *steer.PlanInput) bool {
				return !first.Regions[virginia].Unhealthy && second.Regions[virginia].Unhealthy
			},
		},
		{
			name: "returns: a region that the plan in force does without comes back by a ramp",
			setup: func(b *plannerFixture) {
				b.plan = &steer.Plan{SpecVersion: 1, Regions: []string{"virginia", "frankfurt", "tokyo"}, Without: []string{"virginia"}}
			},
			check: func(first, second *steer.PlanInput) bool {
				r := first.Regions[virginia].Ramp
				return r > 0 && r < 1 && first.Regions[1].Ramp == 0
			},
		},
		{
			name: "smooth: a wait counts by its moving average",
			next: func(b *plannerFixture) { b.reports["virginia"].Models[0].WorkAhead[spec.Standard] = 100_000 },
			check: func(first, second *steer.PlanInput) bool {
				w := second.Regions[virginia].Models[0].Wait
				return first.Regions[virginia].Models[0].Wait == 0 && w > 0 && w < 5
			},
		},
		{
			name:  "smoothing: demand within chance counts by its moving average",
			setup: func(b *plannerFixture) { b.setDemand("virginia", 2000) },
			next:  func(b *plannerFixture) { b.setDemand("virginia", 3000) },
			check: func(first, second *steer.PlanInput) bool {
				return first.Demand[0].Rate == 2000 && second.Demand[0].Rate > 2000 && second.Demand[0].Rate < 2500
			},
		},
		{
			name: "smoothing: a noisy learned rate counts by its moving average",
			next: func(b *plannerFixture) { b.reports["virginia"] = summaryWithCapacity(12_000, 8) },
			check: func(first, second *steer.PlanInput) bool {
				rate := second.Regions[virginia].Models[0].Rate
				return first.Regions[virginia].Models[0].Rate == 10_000 && rate > 10_000 && rate < 11_000
			},
		},
		{
			name: "smoothing: a wait that demand explains is not counted",
			setup: func(b *plannerFixture) {
				b.setDemand("virginia", 9000)
				b.reports["virginia"].Models[0].WorkAhead[spec.Standard] = 10_000
				b.reports["frankfurt"].Models[0].WorkAhead[spec.Standard] = 10_000
			},
			check: func(first, second *steer.PlanInput) bool {
				return first.Regions[virginia].Models[0].Wait == 0 && first.Regions[1].Models[0].Wait == 1
			},
		},
		{
			name: "smoothing: heavy networks' demand counts by its moving average",
			setup: func(b *plannerFixture) {
				b.setDemand("virginia", 2000)
				b.setHeavyNetworks("virginia", 500, 500)
				b.s.peerReports.putReport("g2", []byte(`{"settled":true,"heard":[],"plans":3}`))
				b.s.peerReports.putReport("g3", []byte(`{"settled":true,"heard":[],"plans":3}`))
			},
			next: func(b *plannerFixture) { b.setHeavyNetworks("virginia", 900, 100) },
			check: func(first, second *steer.PlanInput) bool {
				return len(first.HeavyHitters) == 2 && first.HeavyHitters[0].Rate == 500 && len(second.HeavyHitters) == 2 && second.HeavyHitters[0].Rate > 500 && second.HeavyHitters[0].Rate < 890
			},
		},
		{
			name: "heavy networks are not counted before every node reads their plans",
			setup: func(b *plannerFixture) {
				b.setDemand("virginia", 2000)
				b.setHeavyNetworks("virginia", 500, 500)
				b.s.peerReports.putReport("g2", []byte(`{"settled":true,"heard":[],"plans":3}`))
			},
			check: func(first, second *steer.PlanInput) bool { return len(first.HeavyHitters) == 0 },
		},
		{
			name:  "memory: what was solved is remembered",
			check: func(first, second *steer.PlanInput) bool { return first.Memory != nil && first.Memory == second.Memory },
		},
		{
			name:  "bounds: capacity beyond what the fleet shows is not counted",
			setup: func(b *plannerFixture) { b.reports["virginia"] = summaryWithCapacity(10_000_000, 8) },
			check: func(first, second *steer.PlanInput) bool { return first.Regions[virginia].Models[0].Rate < 1_000_000 },
		},
		{
			name: "bounds: demand that the region cannot see stays in the region",
			setup: func(b *plannerFixture) {
				b.setDemand("tokyo", 1000)
				for range 61 { // a node counts all demand in its first minute
					b.now = b.now.Add(time.Second)
					b.observeReports(b.buildSnapshot(), b.now)
				}
				b.reports["virginia"].Demand = slices.Clone(b.reports["tokyo"].Demand)
				b.reports["virginia"].Demand[0].TokensPerSec = 1e12
			},
			check: func(first, second *steer.PlanInput) bool {
				sum := 0.0
				for _, d := range second.Demand {
					if d.Service != "" {
						sum += d.Rate
					}
				}
				return sum > 1000 && sum < 2000
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newPlannerFixture(t)
			if c.setup != nil {
				c.setup(b)
			}
			first := b.buildInput(b.buildSnapshot().SteeringSnapshot, b.now)
			b.now = b.now.Add(time.Second)
			if c.next != nil {
				c.next(b)
			}
			if second := b.buildInput(b.buildSnapshot().SteeringSnapshot, b.now); !c.check(first, second) {
				t.Errorf("first %+v %+v\nthen %+v %+v", first.Regions, first.Demand, second.Regions, second.Demand)
			}
		})
	}
}

// TestBlockedPlanningIsReported: the reason that blocks planning is in status, metric and log. A region that only one
// node reports, and that the plan in force does not use, blocks planning for at most half a minute.
func TestBlockedPlanningIsReported(t *testing.T) {
	for _, without := range []bool{false, true} {
		b := newPlannerFixture(t)
		delete(b.reports, "tokyo")
		b.votes.Reports["g2"] = liveness.PeerReport{Settled: true, Reachable: []string{"tokyo/gt"}}
		if b.plan = (&steer.Plan{SpecVersion: 1, Regions: []string{"virginia", "frankfurt", "tokyo"}}); without {
			b.plan.Without = []string{"tokyo"}
		}
		for range 29 {
			b.planner.makePlan(t.Context(), b.buildSnapshot(), b.now)
			b.now = b.now.Add(time.Second)
		}
		if b.log.Len() > 0 || b.s.planBlock.Load().statusNote(b.now) != "" || len(b.stub.plans) != 0 {
			t.Fatalf("after %s: %d plans, log %s", 29*time.Second, len(b.stub.plans), b.log.String())
		}
		for range 121 {
			b.planner.makePlan(t.Context(), b.buildSnapshot(), b.now)
			b.now = b.now.Add(time.Second)
		}
		note, seconds := b.s.planBlock.Load().statusNote(b.now), b.s.planBlock.Load().blockedSeconds(b.now)
		if !strings.Contains(note, "tokyo") || !strings.Contains(note, "g2") {
			t.Errorf("status notes %q", note)
		}
		if n := strings.Count(b.log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings in two minutes, want 2: %s", n, b.log.String())
		}
		if planned := len(b.stub.plans) > 0; planned != without {
			t.Errorf("plans are made: %v, want %v", planned, without)
		}
		if want := 150.0; without && seconds != 0 || !without && math.Abs(seconds-want) > 1 {
			t.Errorf("blocked for %g s", seconds)
		}
		b.reports["tokyo"] = summaryWithCapacity(10_000, 8)
		b.planner.makePlan(t.Context(), b.buildSnapshot(), b.now)
		if note := b.s.planBlock.Load().statusNote(b.now); note != "" || !strings.Contains(b.log.String(), "planning is no longer blocked") {
			t.Errorf("when the region reports status notes %q; log %s", note, b.log.String())
		}
	}
}

// TestReportBoundsOutliveATerm: the reports that a node has observed while it was not the leader, and in an earlier
// term as leader, bound what a region may report when it leads again. A node without observations accepts the first
// report.
func TestReportBoundsOutliveATerm(t *testing.T) {
	for name, before := range map[string]func(b *plannerFixture){
		"it did not lead": func(b *plannerFixture) { b.observeReports(b.buildSnapshot(), b.now) },
		"it led":          func(b *plannerFixture) { b.buildInput(b.buildSnapshot().SteeringSnapshot, b.now) },
		"neither":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newPlannerFixture(t)
			for range 120 {
				if b.now = b.now.Add(time.Second); before != nil {
					before(b)
				}
			}
			b.reports["virginia"] = summaryWithCapacity(10_000_000, 8)
			b.reports["virginia"].Models[0].Hardware[0].Name = "another" // otherwise the other regions' rates would bound it
			b.planner = b.newForTerm()
			b.now = b.now.Add(time.Second)
			rate := b.buildInput(b.buildSnapshot().SteeringSnapshot, b.now).Regions[0].Models[0].Rate
			if bounded := rate < 100_000; bounded != (before != nil) {
				t.Errorf("%g tokens/s are counted", rate)
			}
		})
	}
}

// TestExcessReportsAreLogged: excess reports of a region are logged at most once a minute, with the figures.
func TestExcessReportsAreLogged(t *testing.T) {
	b := newPlannerFixture(t)
	b.reports["virginia"] = summaryWithCapacity(10_000_000, 8)
	for range 90 {
		b.buildInput(b.buildSnapshot().SteeringSnapshot, b.now)
		b.now = b.now.Add(time.Second)
	}
	text := b.log.String()
	if n := strings.Count(text, "level=WARN"); n != 2 {
		t.Errorf("%d warnings in 90 s, want 2", n)
	}
	for _, want := range []string{"region=virginia", "model=m1", "reported_tokens_per_second=10000000", "counted_tokens_per_second=100000", "max_workers"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
}

// TestWarmRegionIsUsedOnlyByPlan has every worker of Virginia sleeping and none ready. Its clients go to Frankfurt
// while there is room, and to Virginia when there is none. In a mode without a plan for it, no client wakes it while
// another region is ready.
func TestWarmRegionIsUsedOnlyByPlan(t *testing.T) {
	for _, c := range []struct {
		mode   string
		others int64 // tokens/s
		demand int64
		want   string
	}{
		{"", 100_000, 1000, "frankfurt"},
		{"", 100, 400, "virginia"},
		{"mode: geo, ", 100, 400, "frankfurt"},
	} {
		v := newStaticSnapshot(t)
		f, err := newNodePolicy(1, []byte(strings.Replace(testSpecText(), "- name: chat.api.example.", "- {"+c.mode+"name: chat.api.example.}", 1)), v.atlas)
		if err != nil {
			t.Fatal(err)
		}
		now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
		for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
			s := summaryWithCapacity(c.others, 1)
			if region == "virginia" {
				s.Models = []*capacity.ModelCapacity{{Name: "m1", Warm: 8, Total: 8}}
				fix := v.atlas.Locate(netip.MustParseAddr(clientAddrs["virginia"]))
				s.Demand = []capacity.CellDemand{{Service: testService, Model: "m1", Cell: geo.CellName(fix.Cell), TokensPerSec: c.demand}}
			}
			s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
			book.PutSummary(s, now)
		}
		v = testSnapshot(f, &consensus.State{}, book.BuildView(now), soloVotes(), now, true)
		v.Plan = steer.SolvePlan(v.BuildPlanInput()).Plan
		v.Table = steer.CompileTable(f.Spec, f.PriorGeo, v.Plan)
		got := map[string]int{}
		for i := range 60 {
			a := v.AnswerService(0, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
			for name, addr := range testGatewayAddrs {
				if len(a.Addrs) > 0 && a.Addrs[0] == addr {
					got[name]++
				}
			}
		}
		if got[c.want] != 60 {
			t.Errorf("mode %q, others do %d of %d tokens/s: %v, want all in %s", c.mode, c.others, c.demand, got, c.want)
		}
	}
}
