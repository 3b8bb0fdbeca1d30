package global

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestReadDrainRules: the rules come from the spec and the given time, and a spec without rules has none.
func TestReadDrainRules(t *testing.T) {
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC) // a Monday
	if r := readDrainRules([]byte(testSpecText()), at); r.MinRegions != 0 || r.MinCapacityShare != 0 || r.BlockedBy != "" {
		t.Errorf("a spec without rules has %+v", r)
	}
	text := []byte(testSpecText() + "safety: {min_regions: 2, min_capacity_share: 0.4, blocked_windows: [{name: office, days: [mon], from: \"08:00\", to: \"18:00\"}]}\n")
	r := readDrainRules(text, at)
	if r.MinRegions != 2 || r.MinCapacityShare != 400_000 || len(r.Regions) != 3 || len(r.Regions[0].Zones) != 2 {
		t.Errorf("%+v", r)
	}
	if want := "safety.blocked_windows forbids drains now: office (mon from 08:00 to 18:00 UTC)"; r.BlockedBy != want {
		t.Errorf("blocked by %q, want %q", r.BlockedBy, want)
	}
	if r := readDrainRules(text, at.Add(24*time.Hour)); r.BlockedBy != "" {
		t.Errorf("on Tuesday blocked by %q", r.BlockedBy)
	}
}

// TestMeasureDrainTakes: a region reports its share, and a zone the part of its ready workers.
func TestMeasureDrainTakes(t *testing.T) {
	v := newStaticSnapshot(t)
	below := &admin.RegionStatus{Name: "tokyo", Zones: []admin.ZoneStatus{
		{Name: "a", Models: []admin.ModelStatus{{Name: "m1", Ready: 6}}}, {Name: "b", Models: []admin.ModelStatus{{Name: "m1", Ready: 2}}},
	}}
	for path, want := range map[string]int64{"tokyo": 333_333, "tokyo/a": 250_000, "tokyo/b": 83_333} {
		if got := measureDrainTakes(v, path, below); len(got) != 1 || got[0].Model != "m1" || got[0].Share != want {
			t.Errorf("%s: %+v, want %d", path, got, want)
		}
	}
	if got := measureDrainTakes(v, "tokyo/a", nil); len(got) != 0 {
		t.Errorf("without the region's report: %+v", got)
	}
}

// testSafetyRules applies a spec with rules, races forced drains at two nodes, and pulls and releases the lever.
func (p *testFleet) testSafetyRules(t *testing.T) {
	c, other := p.adminClient(p.nodes[0]), p.adminClient(p.nodes[1])
	apply := func(text string) {
		t.Helper()
		if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	end := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if _, err := c.EndDrain(t.Context(), path, "test"); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range p.liveNodes() {
			testkit.Eventually(t, "no drain is left", func() bool { v := s.snapshot.Load(); return len(v.state.Drains) == 0 && v.Drained.IsEmpty() })
		}
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if e := (*admin.Error)(nil); !errors.As(err, &e) || e.Status != 400 || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, want)
		}
	}
	apply(testSpecText() + "safety: {min_regions: 2}\n")
	for _, s := range p.liveNodes() {
		testkit.Eventually(t, "the rule is in force", func() bool { return s.snapshot.Load().Spec.Safety.MinRegions == 2 })
	}
	paths := []string{"virginia", "frankfurt"}
	for range 5 {
		var wg sync.WaitGroup
		var errs [2]error
		for i := range paths {
			admins := p.adminClient(p.nodes[i])
			wg.Go(func() {
				_, errs[i] = admins.StartDrain(t.Context(), admin.DrainRequest{Path: paths[i], Force: true, Reason: "race"})
			})
		}
		wg.Wait()
		switch {
		case errs[0] == nil && errs[1] != nil:
			refused("frankfurt", errs[1], "safety.min_regions (2)")
			end("virginia")
		case errs[1] == nil && errs[0] != nil:
			refused("virginia", errs[0], "safety.min_regions (2)")
			end("frankfurt")
		default:
			t.Fatalf("%v and %v, want one refusal", errs[0], errs[1])
		}
	}
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo"}); err != nil {
		t.Fatal(err)
	}
	if out, err := other.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia", DryRun: true}); err != nil || !strings.Contains(out.Note, "it would be refused: drain of virginia refused") {
		t.Errorf("dry run: %+v, %v", out, err)
	}
	_, err := other.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia", OverrideSafety: true})
	refused("an override without a reason", err, "add --reason")
	if _, err := other.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia", OverrideSafety: true, Reason: "fire"}); err != nil {
		t.Errorf("overridden: %v", err)
	}
	end("tokyo", "virginia")
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", Drill: "gameday", ForMS: 600_000}); err != nil {
		t.Fatal(err)
	}
	_, err = other.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo/a", Drill: "second", ForMS: 600_000})
	refused("a second drill", err, "drill gameday is in progress")
	if a, err := other.SetStopLever(t.Context(), admin.StopLeverRequest{Stop: true, Reason: "incident 42"}); err != nil || !a.Stopped || a.Reason != "incident 42" {
		t.Fatalf("%+v, %v", a, err)
	}
	if out, err := c.ListDrainsLinearizable(t.Context()); err != nil || len(out.Drains) != 0 {
		t.Errorf("after stop-all %+v is drained, %v", out, err)
	}
	_, err = c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", Force: true})
	refused("a drain while stopped", err, "incident 42")
	if st, err := c.GetStatus(t.Context()); err != nil || !strings.Contains(strings.Join(st.Notes, "\n"), "drills and drains are stopped by") {
		t.Errorf("status has the notes %v, %v", st.Notes, err)
	}
	if a, err := other.SetStopLever(t.Context(), admin.StopLeverRequest{}); err != nil || a.Stopped {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.GetStopLever(t.Context()); err != nil || a.Stopped {
		testkit.Eventually(t, "the release arrives", func() bool { a, err := c.GetStopLever(t.Context()); return err == nil && !a.Stopped })
	}
	apply(testSpecText())
	testkit.Eventually(t, "each client has its own region", p.allNearest)
}
