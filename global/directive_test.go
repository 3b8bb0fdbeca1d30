package global

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Gateways that the spec does not declare are not named to peers, however many of them run in a declared region.
func TestPeersNameOnlyDeclaredGateways(t *testing.T) {
	v, now := stillView(t), time.Now()
	book := capacity.NewBook(capacity.Thresholds{})
	put := func(region, gateway string) {
		s := capacityOf(10000, 8)
		s.Path, s.Boot, s.Seq, s.Endpoint = capacity.Path{Region: region, Instance: gateway}, 1, 1, "127.0.0.1:7400"
		book.Put(s, now)
	}
	put("tokyo", "gt")
	put("virginia", "gv")
	for i := range 65 {
		put("tokyo", fmt.Sprint("other", i))
	}
	v = newView(v.frame, &consensus.State{}, book.View(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
	found := false
	for _, p := range v.peers(v.region("virginia"), now) {
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

// What a spec may declare, steering can tell apart.
func TestSpecAndSteeringAgreeOnRegions(t *testing.T) {
	if spec.MaxRegions > steer.MaxRegions {
		t.Errorf("a spec may have %d regions, %d can be steered", spec.MaxRegions, steer.MaxRegions)
	}
}
