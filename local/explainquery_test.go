package local_test

import (
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestExplainUsesTheGivenTenantAndPrompt: an explain query without a tenant gets no note about one, and its prompt
// has the stated length.
func TestExplainUsesTheGivenTenantAndPrompt(t *testing.T) {
	a := startAgent(t, addIneligibleWorkers, newFakeVLLM(t, "w1"))
	testkit.Eventually(t, "the worker is ready", func() bool {
		recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
		return err == nil && recs[0].Chosen == "w1"
	})
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
	if err != nil || !strings.Contains(recs[0].Query, "1000") {
		t.Errorf("the query is %q, %v; want 1000 prompt tokens in it", recs[0].Query, err)
	}
	for _, note := range recs[0].Notes {
		if strings.Contains(note, "tenant  ") {
			t.Errorf("a note names no tenant: %q", note)
		}
	}
}
