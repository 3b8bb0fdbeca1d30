package global

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestARegionThatSleepsIsUsedOnlyByPlan has every worker of Virginia warm and none ready. Its clients go to Frankfurt while
// there is room, and home when there is none; in a mode without a plan for it, nobody wakes it while another is ready.
func TestARegionThatSleepsIsUsedOnlyByPlan(t *testing.T) {
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
		v := stillView(t)
		f, err := newFrame(1, []byte(strings.Replace(specText(), "- name: chat.api.example.", "- {"+c.mode+"name: chat.api.example.}", 1)), v.atlas)
		if err != nil {
			t.Fatal(err)
		}
		now, book := time.Now(), capacity.NewBook(capacity.Thresholds{})
		for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
			s := capacityOf(c.others, 1)
			if region == "virginia" {
				s.Models = []capacity.Model{{Name: "m1", Warm: 8, Total: 8}}
				fix := v.atlas.Locate(netip.MustParseAddr(clients["virginia"]))
				s.Demand = []capacity.Demand{{Service: service, Model: "m1", Cell: geo.CellName(fix.Cell), TokensPerSec: c.demand}}
			}
			s.Path, s.Boot, s.Seq = capacity.Path{Region: region, Instance: gw}, 1, 1
			book.Put(s, now)
		}
		v = newView(f, &consensus.State{}, book.View(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
		v.plan = steer.Solve(v.input()).Plan
		v.table = steer.Compile(f.spec, f.geo, v.plan)
		got := map[string]int{}
		for i := range 60 {
			a := v.Answer(0, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
			for name, addr := range gatewayAddr {
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
