package global

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Gateways that the spec does not declare are not named to peers, however many of them run in a declared region.
func TestPeersNameOnlyDeclaredGateways(t *testing.T) {
	v, now := newStaticSnapshot(t), time.Now()
	book := capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	put := func(region, gateway string) {
		s := summaryWithCapacity(10000, 8)
		s.Path, s.Boot, s.Seq, s.Endpoint = capacity.Path{Region: region, Instance: gateway}, 1, 1, "127.0.0.1:7400"
		book.PutSummary(s, now)
	}
	put("tokyo", "gt")
	put("virginia", "gv")
	for i := range 65 {
		put("tokyo", fmt.Sprint("other", i))
	}
	v = testSnapshot(v.policy, &consensus.State{}, book.BuildView(now), soloVotes(), now, true)
	found := false
	for _, p := range v.ListPeers(v.RegionIndex("virginia"), now) {
		if p.Region != "tokyo" {
			continue
		}
		if found = true; len(p.Gateways) != 1 || p.Gateways[0].Name != "gt" {
			t.Errorf("tokyo has %v", p.Gateways)
		}
	}
	if !found {
		t.Error("tokyo is no peer")
	}
}

// Steering supports every region that a spec may declare.
func TestSpecAndSteeringHaveTheSameRegionLimit(t *testing.T) {
	if spec.MaxRegions > steer.MaxRegions {
		t.Errorf("a spec may have %d regions, %d can be steered", spec.MaxRegions, steer.MaxRegions)
	}
}

// TestCheckSpecCompilesTheTable: a spec with the maximum number of regions and equal weights passes the check before
// the Raft log and becomes a nodePolicy, whose table the snapshotBuilder compiles on every node.
func TestCheckSpecCompilesTheTable(t *testing.T) {
	for _, n := range []int{200, 201, steer.MaxRegions} {
		var regions, weights strings.Builder
		for r := range n {
			fmt.Fprintf(&regions, "  - {name: r%03d, place: {lat: 39, lon: 8}, gateways: [{name: g, addresses: [10.0.1.%d], url: \"http://10.0.1.%d:8080\"}]}\n", r, r, r)
			fmt.Fprintf(&weights, "      r%03d: 0.1\n", r)
		}
		text := "zone:\n  name: api.example.\n  nameservers: [{name: ns1.api.example., addresses: [10.0.0.1]}]\nservices:\n  - name: chat.api.example.\n    mode: weighted\n    weights:\n" +
			weights.String() + "regions:\n" + regions.String() + "models:\n  - name: m1\n"
		if err := checkSpec(nil, []byte(text)); err != nil {
			t.Fatalf("%d regions: %v", n, err)
		}
	}
}
