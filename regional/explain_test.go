package regional

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

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
