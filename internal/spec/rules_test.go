package spec_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// drawRules draws an alias with conditions, and fallbacks without cycles.
func drawRules(t *rapid.T, s *spec.Spec, models []string) {
	weight := rapid.Float64Range(0.001, 1)
	targets := []spec.AliasTarget{{Model: models[0], Weight: weight.Draw(t, "target")}}
	if rapid.Bool().Draw(t, "conditional") {
		targets = append(targets, spec.AliasTarget{Model: models[len(models)-1], Weight: weight.Draw(t, "other"), When: spec.TargetConditions{
			Header: spec.HeaderCondition{Name: "X-Cohort", Value: rapid.SampledFrom([]string{"", "beta"}).Draw(t, "value")},
			Cohort: rapid.SampledFrom([]float64{0, 0.5, 100}).Draw(t, "cohort"),
		}})
	}
	s.Aliases = []spec.Alias{{
		Name: "alias+longer+than+any+model+drawn", Targets: targets,
		Sticky: rapid.SampledFrom([]string{spec.StickySession, spec.StickyClient, spec.StickyTenant, spec.StickyNone}).Draw(t, "sticky"),
	}}
	if len(models) > 1 {
		s.Models[0].Fallback = models[1]
	}
	s.Models[0].OutputLimit = rapid.IntRange(0, 4096).Draw(t, "limit")
}

func drawPools(t *rapid.T, s *spec.Spec, models []string) {
	if !rapid.Bool().Draw(t, "pools") {
		return
	}
	p := spec.WorkerPool{
		Name: "gold", Labels: map[string]string{"tier": "gold", "b": ""}, Models: models, Overflow: rapid.Bool().Draw(t, "overflow"),
		Classes: rapid.SampledFrom([][]spec.Class{nil, {spec.Interactive}, {spec.Batch, spec.Interactive}}).Draw(t, "classes"),
	}
	for i := range s.Tenants {
		p.Tenants = append(p.Tenants, s.Tenants[i].Name)
	}
	s.Pools = []spec.WorkerPool{p}
}

// TestStandaloneSpecNeedsNoRegions: what a standalone zone does not use may be missing, and mistakes in the
// rest are still found.
func TestStandaloneSpecNeedsNoRegions(t *testing.T) {
	for _, ok := range []string{
		"routing: {policy: round_robin}\n", "models: [{name: a}, {name: b}]\naliases: [{name: x, targets: [{model: a, weight: 1}, {model: b, weight: 1, when: {tenants: [default]}}]}]\n",
		"pools: [{name: gold, labels: {tier: gold}, tenants: [default]}]\n", "tenants: [{name: default, fallback: true}]\n",
	} {
		if s, err := spec.DecodeStandalone("alone", []byte(ok)); err != nil || s.Routing.MaxBody != 8<<20 {
			t.Errorf("%s: %v", ok, err)
		}
		if _, err := spec.Decode("whole", []byte(ok)); err == nil {
			t.Errorf("%s: taken for a whole spec", ok)
		}
	}
	for text, want := range map[string]string{
		"routing: {policy: rond_robin}\n": "round_robin", "regions: [{name: r}]\n": "no gateways", "zone: {name: api.example}\n": "does not end with a dot",
		"aliases: [{name: x, targets: [{model: a, weight: 1}]}]\n": `unknown model "a"`,
	} {
		if _, err := spec.DecodeStandalone("alone", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	whole, err := os.ReadFile("testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.DecodeStandalone("alone", whole); err != nil {
		t.Error(err)
	}
}

// TestAliasMayListModelTwice: conditions distinguish its targets, in validation and in diffs.
func TestAliasMayListModelTwice(t *testing.T) {
	const text = "models: [{name: a}, {name: b}]\naliases: [{name: x, targets: [{model: a, weight: 9}, {model: b, weight: 1}, {model: b, weight: 1, when: {cohort: 10}}]}]\n"
	from, err := spec.DecodeStandalone("from", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	to, err := spec.DecodeStandalone("to", []byte(strings.Replace(text, "weight: 1, when", "weight: 4, when", 1)))
	if err != nil {
		t.Fatal(err)
	}
	changes := spec.DiffSpecs(from, to)
	if len(changes) != 1 || changes[0].String() != "aliases[x].targets[b when tenant is in the cohort of 10 %].weight: 1 -> 4" {
		t.Errorf("changes are %v", changes)
	}
}

// TestDrainShare: the share falls linearly from 1 to 0.
func TestDrainShare(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		over := time.Duration(rapid.Int64Range(1, int64(366*24*time.Hour)).Draw(t, "over"))
		a := time.Duration(rapid.Int64Range(-int64(over), 2*int64(over)).Draw(t, "a"))
		b := a + time.Duration(rapid.Int64Range(0, int64(over)).Draw(t, "b"))
		share := func(after time.Duration) float64 { return spec.DrainShare(start, over, start.Add(after)) }
		x, y := share(a), share(b)
		switch {
		case x < 0 || x > 1 || y > x:
			t.Fatalf("the share goes from %v to %v", x, y)
		case a <= 0 && x != 1:
			t.Fatalf("%v stays before the start", x)
		case b >= over && y != 0:
			t.Fatalf("%v stays after the end", y)
		case a >= 0 && b <= over && math.Abs((x-y)-float64(b-a)/float64(over)) > 1e-9:
			t.Fatalf("in %s of %s %v leaves", b-a, over, x-y)
		}
	})
	for name, share := range map[string]float64{
		"over 0":         spec.DrainShare(start, 0, start),
		"unknown start":  spec.DrainShare(time.Time{}, time.Hour, start),
		"a negative one": spec.DrainShare(start, -time.Hour, start),
	} {
		if share != 0 {
			t.Errorf("%s leaves %v", name, share)
		}
	}
}
