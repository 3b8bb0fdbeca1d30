package global

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"pgregory.net/rapid"
)

// TestDemandOfSeveralGatewaysCountsOnce: for any order of a region's summaries, with repeated, overtaken and
// restarted ones, the planner's demand is the sum of the reachable gateways' last summaries, and the region's
// capacity is that of one of them.
func TestDemandOfSeveralGatewaysCountsOnce(t *testing.T) {
	still := newStaticSnapshot(t)
	rapid.Check(t, func(t *rapid.T) { checkDemandCountedOnce(t, still) })
}

// zoneRate is the rate that every gateway reports for the one zone, in tokens/s.
const zoneRate = 10_000

// gatewayReport is a gateway's newest summary, by the demand that arrived at it.
type gatewayReport struct {
	boot, seq   uint64
	requested   map[string]int64 // by cell
	unreachable bool
}

func checkDemandCountedOnce(t *rapid.T, v *nodeSnapshot) {
	in := newSummaryStore(func() {})
	in.book = capacity.NewSummaryTable(capacity.FreshnessThresholds{StaleAfter: time.Hour, UnreachableAfter: time.Hour}) // however slow the machine is
	var cells []string
	for _, place := range []string{"tokyo", "frankfurt"} {
		cells = append(cells, geo.CellName(v.atlas.Locate(netip.MustParseAddr(clientAddrs[place])).Cell))
	}
	slices.Sort(cells)
	truth := map[string]*gatewayReport{}
	var old []*capacity.Summary
	for range rapid.IntRange(1, 30).Draw(t, "statements") {
		gw := fmt.Sprintf("g%d", rapid.IntRange(1, 3).Draw(t, "gateway"))
		path := capacity.Path{Region: "tokyo", Instance: gw}
		g := truth[gw]
		switch what := rapid.SampledFrom([]string{"news", "news", "restart", "again", "loss"}).Draw(t, "what"); {
		case what == "again" && len(old) > 0:
			in.handleSummary(identity.ID{}, rapid.SampledFrom(old).Draw(t, "old one")) // a copy that was delayed for long
		case what == "loss" && g != nil:
			in.markUnreachable(identity.ID{}, path)
			g.unreachable = true
		default:
			if g == nil || what == "restart" {
				boot := uint64(1)
				if g != nil {
					boot = g.boot + 1
				}
				g = &gatewayReport{boot: boot}
				truth[gw] = g
			}
			g.seq, g.unreachable, g.requested = g.seq+1, false, map[string]int64{}
			s := summaryWithCapacity(zoneRate, 8)
			s.Path, s.Boot, s.Seq = path, g.boot, g.seq
			for _, cell := range cells {
				n := rapid.Int64Range(0, 5000).Draw(t, "tokens")
				g.requested[cell] = n
				s.Demand = append(s.Demand, capacity.CellDemand{Service: testService, Model: "m1", Cell: cell, TokensPerSec: n})
			}
			old = append(old, s)
			in.handleSummary(identity.ID{}, s)
		}
	}
	now := time.Now()
	v = testSnapshot(v.policy, &consensus.State{}, in.capacityView(now), soloVotes(), now, true)
	want, heard := map[string]float64{}, 0
	for _, g := range truth {
		if g.unreachable {
			continue // its clients go to the others and are counted there
		}
		heard++
		for cell, n := range g.requested {
			want[cell] += float64(n)
		}
	}
	if heard == 0 {
		return
	}
	input := v.BuildPlanInput()
	got := map[string]float64{}
	for _, d := range input.Demand {
		if d.Service != testService {
			t.Fatalf("demand of %q", d.Service)
		}
		got[d.Cell] += d.Rate
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%d gateways of %d are reachable; the planner's demand is %v, theirs is %v", heard, len(truth), got, want)
	}
	if r := input.Regions[v.SteeringPolicy.RegionIndex("tokyo")]; len(r.Models) != 1 || r.Models[0].Rate != zoneRate || r.Models[0].Total != 8 {
		t.Fatalf("%d gateways speak of one zone, the planner sees %+v", heard, r.Models)
	}
}

// TestPeerRoundTripsAreTheMeasuredOnes: Virginia measured Frankfurt at 140 ms. Both receive that value, less the
// weight of the prior. Tokyo has no measurement, and a measurement faster than light is ignored.
func TestPeerRoundTripsAreTheMeasuredOnes(t *testing.T) {
	still := newStaticSnapshot(t)
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		s := summaryWithCapacity(10000, 8)
		s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
		switch region {
		case "virginia":
			s.RTTs = []capacity.CellRTT{
				{Cell: capacity.RegionCell("frankfurt"), Samples: 48, TotalMicros: 48 * 140_000},
				{Cell: capacity.RegionCell("nowhere"), Samples: 9, TotalMicros: 9},
				{Cell: capacity.RegionCell("virginia"), Samples: 9, TotalMicros: 9},
			}
		case "tokyo":
			s.RTTs = []capacity.CellRTT{{Cell: capacity.RegionCell("frankfurt"), Samples: 60, TotalMicros: 60 * 1000}}
		}
		book.PutSummary(s, now)
	}
	v := testSnapshot(still.policy, &consensus.State{}, book.BuildView(now), still.Votes, now, true)
	v.SetRTTs(snapshot.EstimateRTTs(still.SteeringPolicy, book.BuildView(now), geo.DefaultMaxMeasurementAge, now))
	virginia, frankfurt, tokyo := v.RegionIndex("virginia"), v.RegionIndex("frankfurt"), v.RegionIndex("tokyo")
	prior := geo.PriorRTT(locationOf(&v.Spec.Regions[virginia]), locationOf(&v.Spec.Regions[frankfurt]))
	want := (16*prior + 48*140*time.Millisecond) / 64
	for _, way := range [][2]int{{virginia, frankfurt}, {frankfurt, virginia}} {
		if rtt, n := v.RegionRTT(way[0], way[1]); n != 48 || (rtt-want).Abs() > time.Microsecond {
			t.Errorf("from %d to %d: %s with %d samples, want %s with 48", way[0], way[1], rtt, n, want)
		}
	}
	if rtt, n := v.RegionRTT(frankfurt, tokyo); n != 0 || rtt != geo.PriorRTT(locationOf(&v.Spec.Regions[frankfurt]), locationOf(&v.Spec.Regions[tokyo])) {
		t.Errorf("a measurement faster than light counts: %s with %d samples", rtt, n)
	}
	for _, p := range v.ListPeers(virginia, now) {
		if p.Region == "frankfurt" && (p.RTTSamples != 48 || (p.RTT-want).Abs() > time.Microsecond) {
			t.Errorf("the directive has %s, %d samples", p.RTT, p.RTTSamples)
		}
	}
}
