package global

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// testMistakes sends every kind of mistake in the testdata of package spec through the admin interface: the answer
// must be the error of the spec's decoder, to the byte, and nothing may be applied.
func (p *testFleet) testMistakes(t *testing.T) {
	files, err := filepath.Glob("../internal/spec/testdata/mistakes/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files, %v; want at least 30", len(files), err)
	}
	c := p.adminClient(p.nodes[1])
	before, err := c.GetSpec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		for _, dry := range []bool{true, false} {
			_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: filepath.Base(file), Text: string(text), DryRun: dry})
			var e *admin.Error
			if !errors.As(err, &e) || e.Status != 400 {
				t.Errorf("%s, dry run %v: %v, want a refusal", file, dry, err)
				continue
			}
			if e.Error()+"\n" != string(want) {
				t.Errorf("%s, dry run %v: the operator reads\n%s\nwant\n%s", file, dry, e.Error(), want)
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
	t.Logf("%d mistakes came through unchanged", len(files))
}
