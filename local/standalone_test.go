package local_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// TestAZoneAloneSaysSo: it has a spec file or none, and no versions; and it explains a choice without being told whose.
func TestAZoneAloneSaysSo(t *testing.T) {
	_, c, _ := asking(t, nil, newVLLM(t, "w1"))
	s, err := c.Status(t.Context())
	if err != nil || s.SpecFile == nil || s.SpecFile.Path != "" {
		t.Errorf("%+v %v", s, err)
	}
	out, err := c.Explain(t.Context(), admin.ExplainQuery{Model: "llama-3.1-8b"})
	if err != nil || len(out.Records) != 1 || out.Records[0].Chosen != "w1" {
		t.Errorf("%+v %v", out, err)
	}
}
