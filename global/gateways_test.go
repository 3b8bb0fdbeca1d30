package global

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestWhatSeveralGatewaysAreAskedForCountsOnce: whatever gateways of a region say in whatever order, some of it twice or
// overtaken, some after a restart, the planner's demand is what those that are heard said last, added up once, and the
// region's capacity is that of one of them.
func TestWhatSeveralGatewaysAreAskedForCountsOnce(t *testing.T) {
	still := stillView(t)
	rapid.Check(t, func(t *rapid.T) { countOnce(t, still) })
}

// oneZonesRate is what every gateway says of the one zone, in tokens/s.
const oneZonesRate = 10_000

// spoken is a gateway's newest statement, by what it was asked for.
type spoken struct {
	boot, seq uint64
	asked     map[string]int64 // by cell
	lost      bool
}

func countOnce(t *rapid.T, v *View) {
	in := newIngest(func() {})
	in.book = capacity.NewBook(capacity.Thresholds{Stale: time.Hour, Lost: time.Hour}) // however slow the machine is
	var cells []string
	for _, place := range []string{"tokyo", "frankfurt"} {
		cells = append(cells, geo.CellName(v.atlas.Locate(netip.MustParseAddr(clients[place])).Cell))
	}
	slices.Sort(cells)
	truth := map[string]*spoken{}
	var old []*capacity.Summary
	for range rapid.IntRange(1, 30).Draw(t, "statements") {
		gw := fmt.Sprintf("g%d", rapid.IntRange(1, 3).Draw(t, "gateway"))
		path := capacity.Path{Region: "tokyo", Instance: gw}
		g := truth[gw]
		switch what := rapid.SampledFrom([]string{"news", "news", "restart", "again", "loss"}).Draw(t, "what"); {
		case what == "again" && len(old) > 0:
			in.summary(identity.ID{}, rapid.SampledFrom(old).Draw(t, "old one")) // a copy that was under way for long
		case what == "loss" && g != nil:
			in.lost(identity.ID{}, path)
			g.lost = true
		default:
			if g == nil || what == "restart" {
				boot := uint64(1)
				if g != nil {
					boot = g.boot + 1
				}
				g = &spoken{boot: boot}
				truth[gw] = g
			}
			g.seq, g.lost, g.asked = g.seq+1, false, map[string]int64{}
			s := capacityOf(oneZonesRate, 8)
			s.Path, s.Boot, s.Seq = path, g.boot, g.seq
			for _, cell := range cells {
				n := rapid.Int64Range(0, 5000).Draw(t, "tokens")
				g.asked[cell] = n
				s.Demand = append(s.Demand, capacity.Demand{Service: service, Model: "m1", Cell: cell, TokensPerSec: n})
			}
			old = append(old, s)
			in.summary(identity.ID{}, s)
		}
	}
	now := time.Now()
	v = newView(v.frame, &consensus.State{}, in.view(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
	want, heard := map[string]float64{}, 0
	for _, g := range truth {
		if g.lost {
			continue // its clients come to the others, and are counted there
		}
		heard++
		for cell, n := range g.asked {
			want[cell] += float64(n)
		}
	}
	if heard == 0 {
		return
	}
	input := v.input()
	got := map[string]float64{}
	for _, d := range input.Demand {
		if d.Service != service {
			t.Fatalf("demand of %q", d.Service)
		}
		got[d.Cell] += d.Rate
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%d gateways of %d are heard; the planner takes them for %v, they were asked for %v", heard, len(truth), got, want)
	}
	if r := input.Regions[v.frame.region("tokyo")]; len(r.Models) != 1 || r.Models[0].Rate != oneZonesRate || r.Models[0].Total != 8 {
		t.Fatalf("%d gateways speak of one zone, the planner sees %+v", heard, r.Models)
	}
}
