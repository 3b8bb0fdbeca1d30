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
				s.Models = []capacity.ModelCapacity{{Name: "m1", Warm: 8, Total: 8}}
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
