package global

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
)

// testLinearizableReads writes through one node and reads at once at each of the others: a linearizable read shows
// the write.
func (p *testFleet) testLinearizableReads(t *testing.T) {
	for i := range 10 {
		from := p.adminClient(p.nodes[i%3])
		now, err := from.GetSpecLinearizable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(testSpecText(), "name: tokyo, place", "name: tokyo, bias_ms: "+[]string{"1", "2"}[i%2]+", place", 1)
		a, err := from.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text, BasedOn: now.Version})
		if err != nil || a.Version != now.Version+1 {
			t.Fatalf("applying over spec %d: %+v, %v", now.Version, a, err)
		}
		path := []string{"tokyo", "frankfurt"}[i%2]
		if _, err := from.StartDrain(t.Context(), admin.DrainRequest{Path: path}); err != nil {
			t.Fatal(err)
		}
		for _, n := range p.nodes {
			to := p.adminClient(n)
			if s, err := to.GetSpecLinearizable(t.Context()); err != nil || s.Version != a.Version || !strings.Contains(s.Text, "bias_ms") {
				t.Fatalf("after version %d was put, a linearizable read at another node has %+v, %v", a.Version, s, err)
			}
			if d, err := to.ListDrainsLinearizable(t.Context()); err != nil || len(d.Drains) != 1 || d.Drains[0].Path != path {
				t.Fatalf("after %s was drained, a linearizable read has %+v, %v", path, d, err)
			}
		}
		var e *admin.Error
		if _, err := p.adminClient(p.nodes[(i+1)%3]).ApplySpec(t.Context(), admin.ApplyRequest{Text: text, BasedOn: now.Version}); !errors.As(err, &e) || e.Status != 409 {
			t.Fatalf("applying over a version that is gone: %v", err)
		}
		if _, err := from.EndDrain(t.Context(), path, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), admin.ApplyRequest{Text: testSpecText(), BasedOn: 1 << 40}); err == nil || !strings.Contains(err.Error(), "is in force") {
		t.Fatalf("applying over a version that never was: %v", err)
	}
	if _, err := p.adminClient(p.nodes[0]).ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: testSpecText()}); err != nil {
		t.Fatal(err)
	}
}
