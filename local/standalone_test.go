package local_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestStatusOfStandaloneZone: it has a spec file or none, and no versions. It explains a choice for a query without a
// tenant.
func TestStatusOfStandaloneZone(t *testing.T) {
	_, c, _ := startAgentWithAdmin(t, nil, newFakeVLLM(t, "w1"))
	s, err := c.GetStatus(t.Context())
	if err != nil || s.SpecFile == nil || s.SpecFile.Path != "" {
		t.Errorf("%+v %v", s, err)
	}
	out, err := c.ExplainRequest(t.Context(), admin.ExplainQuery{Model: "llama-3.1-8b"})
	if err != nil || len(out.Records) != 1 || out.Records[0].Chosen != "w1" {
		t.Errorf("%+v %v", out, err)
	}
}
