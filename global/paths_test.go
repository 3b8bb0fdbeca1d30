package global

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestPeersAreAsFarAsGatewaysMeasure: Virginia measured Frankfurt at 140 ms. Both are told so, less what the prior weighs;
// of Tokyo nothing was measured, and one that is faster than light counts for nothing.
func TestPeersAreAsFarAsGatewaysMeasure(t *testing.T) {
	still := stillView(t)
	now, book := time.Now(), capacity.NewBook(capacity.Thresholds{})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		s := capacityOf(10000, 8)
		s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
		switch region {
		case "virginia":
			s.RTTs = []capacity.RTT{
				{Cell: capacity.CellOfRegion("frankfurt"), Samples: 48, TotalMicros: 48 * 140_000},
				{Cell: capacity.CellOfRegion("nowhere"), Samples: 9, TotalMicros: 9},
				{Cell: capacity.CellOfRegion("virginia"), Samples: 9, TotalMicros: 9},
			}
		case "tokyo":
			s.RTTs = []capacity.RTT{{Cell: capacity.CellOfRegion("frankfurt"), Samples: 60, TotalMicros: 60 * 1000}}
		}
		book.Put(s, now)
	}
	v := newView(still.frame, &consensus.State{}, book.View(now), still.quorum, now, true)
	v.adopt(nearness(still.frame, book.View(now), geo.MeasuredFor, now))
	virginia, frankfurt, tokyo := v.region("virginia"), v.region("frankfurt"), v.region("tokyo")
	prior := geo.RTT(placeOf(&v.spec.Regions[virginia]), placeOf(&v.spec.Regions[frankfurt]))
	want := (16*prior + 48*140*time.Millisecond) / 64
	for _, way := range [][2]int{{virginia, frankfurt}, {frankfurt, virginia}} {
		if rtt, n := v.path(way[0], way[1]); n != 48 || (rtt-want).Abs() > time.Microsecond {
			t.Errorf("from %d to %d: %s with %d samples, want %s with 48", way[0], way[1], rtt, n, want)
		}
	}
	if rtt, n := v.path(frankfurt, tokyo); n != 0 || rtt != geo.RTT(placeOf(&v.spec.Regions[frankfurt]), placeOf(&v.spec.Regions[tokyo])) {
		t.Errorf("a measurement faster than light counts: %s with %d samples", rtt, n)
	}
	for _, p := range v.peers(virginia, now) {
		if p.Region == "frankfurt" && (p.RTTSamples != 48 || (p.RTT-want).Abs() > time.Microsecond) {
			t.Errorf("the directive says %s, %d samples", p.RTT, p.RTTSamples)
		}
	}
}
