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

// TestExplainQueriesZoneWithResolvedValues: the query to the zone has the tenant's class and the lengths that the
// gateway uses.
func TestExplainQueriesZoneWithResolvedValues(t *testing.T) {
	sp := &spec.Spec{
		Models:  []spec.Model{{Name: "m"}},
		Tenants: []spec.Tenant{{Name: "acme", Class: spec.Interactive}, {Name: "slow", Class: spec.Batch}},
	}
	for _, c := range []struct {
		ask    admin.ExplainQuery
		class  string
		prompt int64
	}{
		{admin.ExplainQuery{Model: "m"}, "standard", explainPromptTokens},
		{admin.ExplainQuery{Model: "m", Tenant: "acme"}, "interactive", explainPromptTokens},
		{admin.ExplainQuery{Model: "m", Tenant: "slow", PromptTokens: 77}, "batch", 77},
		{admin.ExplainQuery{Model: "m", Tenant: "acme", Class: "batch"}, "batch", explainPromptTokens},
	} {
		q, _, err := parseExplainQuery(c.ask, &gatewayPolicy{spec: sp})
		if err != nil {
			t.Fatal(err)
		}
		got := withResolvedQuery(c.ask, q)
		if got.Class != c.class || got.PromptTokens != c.prompt || got.MaxTokens != explainOutputTokens {
			t.Errorf("%+v becomes %+v, want class %s and %d prompt tokens", c.ask, got, c.class, c.prompt)
		}
	}
}
