package global

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
)

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
