package global

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// testMistakes sends every kind of mistake in the testdata of package spec through the admin interface: the answer
// must be the error of the spec's decoder, to the byte, and nothing may be applied.
func (p *testFleet) testMistakes(t *testing.T) {
	mistakes := testkit.ReadFixtures(t, "../internal/spec/testdata/mistakes/*.txtar", 190)
	c := p.adminClient(p.nodes[1])
	before, err := c.GetSpec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range mistakes {
		for _, dry := range []bool{true, false} {
			_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: mistake.File, Text: string(mistake.Text), DryRun: dry})
			var e *admin.Error
			if !errors.As(err, &e) || e.Status != 400 {
				t.Errorf("%s, dry run %v: %v, want a refusal", mistake.Name, dry, err)
				continue
			}
			if e.Error()+"\n" != mistake.Message {
				t.Errorf("%s, dry run %v: the operator reads\n%s\nwant\n%s", mistake.Name, dry, e.Error(), mistake.Message)
			}
		}
	}
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Text: "zone: 1"})
	if err == nil || !strings.Contains(err.Error(), "spec:1:7: ") {
		t.Errorf("a spec without a name: %v", err)
	}
	after, err := c.GetSpec(t.Context())
	if err != nil || after.Version != before.Version || after.Text != before.Text {
		t.Errorf("spec %d became %d, %v", before.Version, after.Version, err)
	}
	t.Logf("%d mistakes came through unchanged", len(mistakes))
}
