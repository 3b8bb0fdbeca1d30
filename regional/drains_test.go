package regional

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/drainfile"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// TestDrainAnswerWarnsAboutOtherGateways: the response to a drain warns when the region has other gateways.
func TestDrainAnswerWarnsAboutOtherGateways(t *testing.T) {
	now := time.Now()
	drains, err := drainfile.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	if err := drains.PutDrain(admin.Drain{Path: "fra/a", At: now}, now); err != nil {
		t.Fatal(err)
	}
	for gateways, want := range map[int]bool{1: false, 2: true} {
		keeper := &policyKeeper{source: &specSource{drains: drains}}
		a := &adminService{cfg: &Config{Region: "fra"}, policies: keeper, policy: &keeper.policy}
		s := &spec.Spec{Regions: []spec.Region{{Name: "fra", Gateways: make([]spec.Gateway, gateways)}}}
		keeper.policy.Store(newGatewayPolicy(&uplink.Directive{}, s, "fra", now))
		if note := a.drainAnswer(now).Note; strings.Contains(note, "do the same at the other gateways of fra") != want || !strings.Contains(note, "dir is not set") {
			t.Errorf("with %d gateways: %q", gateways, note)
		}
	}
}
