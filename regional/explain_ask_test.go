package regional

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestExplainAsksBelowWhatItResolved: the zone is asked with the tenant's class and the same lengths as the gateway uses.
func TestExplainAsksBelowWhatItResolved(t *testing.T) {
	sp := &spec.Spec{
		Models:  []spec.Model{{Name: "m"}},
		Tenants: []spec.Tenant{{Name: "acme", Class: spec.Interactive}, {Name: "slow", Class: spec.Batch}},
	}
	for _, c := range []struct {
		ask    admin.ExplainQuery
		class  string
		prompt int64
	}{
		{admin.ExplainQuery{Model: "m"}, "standard", explainPrompt},
		{admin.ExplainQuery{Model: "m", Tenant: "acme"}, "interactive", explainPrompt},
		{admin.ExplainQuery{Model: "m", Tenant: "slow", PromptTokens: 77}, "batch", 77},
		{admin.ExplainQuery{Model: "m", Tenant: "acme", Class: "batch"}, "batch", explainPrompt},
	} {
		q, _, err := explainQuery(c.ask, &state{spec: sp})
		if err != nil {
			t.Fatal(err)
		}
		got := resolved(c.ask, q)
		if got.Class != c.class || got.PromptTokens != c.prompt || got.MaxTokens != explainOutput {
			t.Errorf("%+v becomes %+v, want class %s and %d prompt tokens", c.ask, got, c.class, c.prompt)
		}
	}
}
