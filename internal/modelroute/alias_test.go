package modelroute_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

// newSpec returns a spec of a standalone zone with one alias, "best".
func newSpec(t testing.TB, targets string, more ...string) *spec.Spec {
	t.Helper()
	text := "models: [{name: old}, {name: new}, {name: third}]\naliases:\n  - {name: best, targets: [" + targets + "]}\ntenants: [{name: acme}, {name: bolt}]\n" + strings.Join(more, "")
	s, err := spec.DecodeStandalone("world", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func twoTargets(old, now float64) string {
	return fmt.Sprintf("{model: old, weight: %v}, {model: new, weight: %v}", old, now)
}

// mustResolve resolves q and fails the test on an error.
func mustResolve(t testing.TB, s *spec.Spec, q modelroute.ModelQuery) modelroute.ResolvedModel {
	t.Helper()
	if q.Model == "" {
		q.Model = "best"
	}
	a, err := modelroute.ResolveModel(s, &q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestCanaryGetsItsShareOfSessions: of 10,000 sessions 5 % +- 0.5 points go to the canary, and raising it moves sessions into the
// canary only.
func TestCanaryGetsItsShareOfSessions(t *testing.T) {
	const sessions = 10_000
	five, ten := newSpec(t, twoTargets(95, 5)), newSpec(t, twoTargets(90, 10))
	var at5, at10, out int
	for i := range sessions {
		q := modelroute.ModelQuery{Session: fmt.Sprintf("session-%d", i), Tenant: "acme", Chance: 0.999}
		a, b := mustResolve(t, five, q).Model, mustResolve(t, ten, q).Model
		q.Chance = 0
		if again := mustResolve(t, five, q).Model; again != a {
			t.Fatalf("session %d flipped from %s to %s", i, a, again)
		}
		if a == "new" {
			at5++
		}
		if b == "new" {
			at10++
		}
		if a == "new" && b == "old" {
			out++
		}
	}
	t.Logf("canary at 5 %%: %.2f %% of %d sessions; at 10 %%: %.2f %%; moved out of it: %d", float64(at5)*100/sessions, sessions, float64(at10)*100/sessions, out)
	if at5 < sessions*45/1000 || at5 > sessions*55/1000 || at10 < sessions*95/1000 || at10 > sessions*105/1000 || out != 0 {
		t.Errorf("%d and %d of %d, %d moved out", at5, at10, sessions, out)
	}
}

// TestWeightChangesMoveFewestSessions: when the weight of a target grows, no session moves to another target,
// and when it falls, no session of another target moves.
func TestWeightChangesMoveFewestSessions(t *testing.T) {
	weight := rapid.Float64Range(0.01, 100)
	rapid.Check(t, func(rt *rapid.T) {
		targets := []spec.AliasTarget{{Model: "old"}, {Model: "new"}, {Model: "third"}}
		for i := range targets {
			targets[i].Weight = weight.Draw(rt, "weight")
		}
		s := &spec.Spec{Models: []spec.Model{{Name: "old"}, {Name: "new"}, {Name: "third"}}, Aliases: []spec.Alias{{Name: "best", Targets: targets}}}
		q := modelroute.ModelQuery{Session: rapid.StringN(1, 20, -1).Draw(rt, "session"), Tenant: rapid.SampledFrom([]string{"acme", "bolt"}).Draw(rt, "tenant")}
		before := mustResolve(t, s, q).Model
		at := rapid.IntRange(0, 2).Draw(rt, "which")
		old := targets[at].Weight
		targets[at].Weight = weight.Draw(rt, "now")
		after := mustResolve(t, s, q).Model
		if before != after && targets[at].Weight >= old && after != targets[at].Model {
			rt.Fatalf("%s grew and a session moved from %s to %s", targets[at].Model, before, after)
		}
		if before != after && targets[at].Weight <= old && before != targets[at].Model {
			rt.Fatalf("%s fell and a session moved from %s to %s", targets[at].Model, before, after)
		}
		slices.Reverse(targets) // the order of targets does not matter
		if again := mustResolve(t, s, q).Model; again != after {
			rt.Fatalf("in another order it goes to %s, not %s", again, after)
		}
	})
}

// TestRequestsWithoutKeyFollowWeights: a request without a sticky key is distributed by chance.
func TestRequestsWithoutKeyFollowWeights(t *testing.T) {
	s := newSpec(t, twoTargets(3, 1))
	count := map[string]int{}
	for i := range 1000 {
		a := mustResolve(t, s, modelroute.ModelQuery{Tenant: "acme", Client: "192.0.2.1", Chance: float64(i) / 1000})
		count[a.Model]++
		if !strings.Contains(a.ExplainRule(), "by chance") {
			t.Fatal(a.ExplainRule())
		}
	}
	if count["old"] != 750 || count["new"] != 250 {
		t.Errorf("shares are %v", count)
	}
}

// TestStickyKeyOrder: the session, else the user, else the alias's setting.
func TestStickyKeyOrder(t *testing.T) {
	for _, tc := range []struct {
		sticky string
		ask    modelroute.ModelQuery
		kept   string
	}{
		{"session", modelroute.ModelQuery{Session: "s", User: "u", Client: "c"}, "session"},
		{"session", modelroute.ModelQuery{User: "u", Client: "c"}, "user"},
		{"session", modelroute.ModelQuery{Client: "c"}, ""},
		{"client", modelroute.ModelQuery{Session: "s", Client: "c"}, "session"},
		{"client", modelroute.ModelQuery{Client: "c"}, "client address"},
		{"client", modelroute.ModelQuery{}, ""},
		{"tenant", modelroute.ModelQuery{Session: "s", Client: "c"}, "tenant"},
		{"none", modelroute.ModelQuery{Session: "s", User: "u", Client: "c"}, ""},
	} {
		s := newSpec(t, twoTargets(1, 1))
		s.Aliases[0].Sticky = tc.sticky
		moved := false
		for i := range 100 {
			tc.ask.Tenant = "acme"
			tc.ask.Chance = float64(i%2) * 0.9
			moved = moved || mustResolve(t, s, tc.ask).Model != mustResolve(t, s, modelroute.ModelQuery{Tenant: "acme", Session: tc.ask.Session, User: tc.ask.User, Client: tc.ask.Client}).Model
		}
		a := mustResolve(t, s, tc.ask)
		want := "kept there by its " + tc.kept
		if tc.kept == "" {
			want = "by chance"
		}
		if moved != (tc.kept == "") || !strings.Contains(a.ExplainRule(), want) {
			t.Errorf("%+v: moved %v, %s", tc, moved, a.ExplainRule())
		}
	}
}

// TestBlueGreenSwitchMovesEveryRequest: a switch of the weights 100 and 0 moves every request, with a session or without.
func TestBlueGreenSwitchMovesEveryRequest(t *testing.T) {
	blue, green := newSpec(t, twoTargets(100, 0)), newSpec(t, twoTargets(0, 100))
	rapid.Check(t, func(rt *rapid.T) {
		q := modelroute.ModelQuery{Session: rapid.String().Draw(rt, "session"), User: rapid.String().Draw(rt, "user"), Chance: rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(rt, "chance")}
		if a, b := mustResolve(t, blue, q).Model, mustResolve(t, green, q).Model; a != "old" || b != "new" {
			rt.Fatalf("before the switch %s, after it %s", a, b)
		}
	})
}

// TestConditionalTargetsWin: targets with met conditions win over the others, and no other request reaches
// them.
func TestConditionalTargetsWin(t *testing.T) {
	const beta = "{model: old, weight: 1}, {model: new, weight: 1, when: {header: {name: x-cohort, value: beta}}}, {model: third, weight: 1, when: {tenants: [bolt]}}"
	header := func(v string) map[string][]string { return map[string][]string{"X-Cohort": {v}} }
	for _, tc := range []struct {
		name, targets, want, rule string
		ask                       modelroute.ModelQuery
	}{
		{"nobody's", beta, "old", modelroute.RuleWeight, modelroute.ModelQuery{Tenant: "acme"}},
		{"another value", beta, "old", modelroute.RuleWeight, modelroute.ModelQuery{Tenant: "acme", Header: header("alpha")}},
		{"by header", beta, "new", modelroute.RuleCondition, modelroute.ModelQuery{Tenant: "acme", Header: header("beta")}},
		{"by tenant", beta, "third", modelroute.RuleCondition, modelroute.ModelQuery{Tenant: "bolt"}},
		{"everybody's cohort", "{model: old, weight: 9}, {model: new, weight: 1, when: {cohort: 100}}", "new", modelroute.RuleCondition, modelroute.ModelQuery{Tenant: "acme"}},
		{"both or neither", "{model: old, weight: 9}, {model: new, weight: 1, when: {tenants: [bolt], header: {name: X-Cohort}}}", "old", modelroute.RuleWeight, modelroute.ModelQuery{Tenant: "bolt"}},
		{"both", "{model: old, weight: 9}, {model: new, weight: 1, when: {tenants: [bolt], header: {name: X-Cohort}}}", "new", modelroute.RuleCondition, modelroute.ModelQuery{Tenant: "bolt", Header: header("")}},
		{"switched off", "{model: old, weight: 9}, {model: new, weight: 0, when: {tenants: [acme]}}", "old", modelroute.RuleWeight, modelroute.ModelQuery{Tenant: "acme"}},
	} {
		a := mustResolve(t, newSpec(t, tc.targets), tc.ask)
		if a.Model != tc.want || a.Rule != tc.rule {
			t.Errorf("%s: %s by %s (%s), want %s by %s", tc.name, a.Model, a.Rule, a.ExplainRule(), tc.want, tc.rule)
		}
	}
}

// TestWeightsAmongMatchingTargets: one tenant's share is split, that of the others is not.
func TestWeightsAmongMatchingTargets(t *testing.T) {
	s := newSpec(t, "{model: old, weight: 50}, {model: new, weight: 30, when: {tenants: [bolt]}}, {model: old, weight: 70, when: {tenants: [bolt]}}")
	count := map[string]int{}
	for i := range 10_000 {
		count["bolt "+mustResolve(t, s, modelroute.ModelQuery{Tenant: "bolt", Session: fmt.Sprint(i)}).Model]++
		count["acme "+mustResolve(t, s, modelroute.ModelQuery{Tenant: "acme", Session: fmt.Sprint(i)}).Model]++
	}
	if n := count["bolt new"]; count["acme old"] != 10_000 || n < 2850 || n > 3150 {
		t.Errorf("shares are %v", count)
	}
}

// TestCohortIsAShareOfTenants: its size is right, and a larger cohort contains a smaller one.
func TestCohortIsAShareOfTenants(t *testing.T) {
	small := newSpec(t, "{model: old, weight: 1}, {model: new, weight: 1, when: {cohort: 10}}")
	large := newSpec(t, "{model: old, weight: 1}, {model: new, weight: 1, when: {cohort: 20}}")
	in10, in20 := 0, 0
	for i := range 10_000 {
		q := modelroute.ModelQuery{Tenant: fmt.Sprintf("tenant-%d", i)}
		a, b := mustResolve(t, small, q).Model == "new", mustResolve(t, large, q).Model == "new"
		if a && !b {
			t.Fatalf("%s left a cohort that grew", q.Tenant)
		}
		if a {
			in10++
		}
		if b {
			in20++
		}
	}
	if in10 < 900 || in10 > 1100 || in20 < 1850 || in20 > 2150 {
		t.Errorf("cohorts of 10 %% and 20 %% hold %d and %d of 10,000", in10, in20)
	}
}

func TestPinSelectsListedTarget(t *testing.T) {
	s := newSpec(t, "{model: old, weight: 100}, {model: new, weight: 0}, {model: new, weight: 1, when: {tenants: [bolt]}}")
	if a := mustResolve(t, s, modelroute.ModelQuery{Pin: "new", Tenant: "acme"}); a.Model != "new" || a.Rule != modelroute.RulePin || !strings.Contains(a.ExplainRule(), "pin") {
		t.Errorf("pinned to %s by %s", a.Model, a.ExplainRule())
	}
	if a := mustResolve(t, s, modelroute.ModelQuery{Model: "old", Pin: "old"}); a.Model != "old" || a.Rule != modelroute.RuleName {
		t.Errorf("a model pinned to itself is %+v", a)
	}
	for _, q := range []modelroute.ModelQuery{{Model: "best", Pin: "third"}, {Model: "old", Pin: "new"}, {Model: "best", Pin: strings.Repeat("x", 10_000)}} {
		_, err := modelroute.ResolveModel(s, &q)
		var not *modelroute.NotATargetError
		if !errors.As(err, &not) || len(err.Error()) > 400 || q.Model == "best" && !slices.Equal(not.Targets, []string{"old", "new"}) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := modelroute.ResolveModel(s, &modelroute.ModelQuery{Model: "nobody"}); !errors.Is(err, modelroute.ErrUnknownModel) {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestResolveModelAllocatesNothing: it is on the path of every request.
func TestResolveModelAllocatesNothing(t *testing.T) {
	s := newSpec(t, "{model: old, weight: 9}, {model: new, weight: 1}, {model: third, weight: 1, when: {tenants: [bolt], header: {name: x-cohort}}}")
	q := modelroute.ModelQuery{Model: "best", Tenant: "bolt", Session: "s", Header: map[string][]string{"X-Cohort": {"a"}, "Accept": {"b"}}}
	if n := testing.AllocsPerRun(100, func() { _, _ = modelroute.ResolveModel(s, &q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFallbackModels(t *testing.T) {
	s, err := spec.DecodeStandalone("s", []byte(`models: [{name: a, fallback: b}, {name: b, fallback: c}, {name: c}]
tenants: [{name: yes, fallback: true}, {name: no}, {name: narrow, fallback: true, models: [a, c]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	chain := func(tenant, model string) (names []string) {
		for m := range modelroute.FallbackModels(s, s.FindTenant(tenant), s.FindModel(model)) {
			names = append(names, m.Name)
		}
		return names
	}
	for _, tc := range []struct{ tenant, model, want string }{
		{"yes", "a", "b c"}, {"yes", "b", "c"}, {"yes", "c", ""}, {"no", "a", ""}, {"narrow", "a", "c"}, {"nobody", "a", ""}, {"yes", "unknown", ""},
	} {
		if got := strings.Join(chain(tc.tenant, tc.model), " "); got != tc.want {
			t.Errorf("%s asking for %s falls back to %q, want %q", tc.tenant, tc.model, got, tc.want)
		}
	}
	s.Models[2].Fallback = "a" // no validated spec has a cycle; following one must still end
	if got := chain("yes", "a"); len(got) > 3 {
		t.Errorf("a circle gives %v", got)
	}
}

func TestPoolSelection(t *testing.T) {
	s := newSpec(t, twoTargets(1, 0), `pools:
  - {name: gold, labels: {tier: gold}, tenants: [acme]}
  - {name: night, labels: {tier: silver, shift: night}, classes: [batch], models: [old, third]}
`)
	for _, tc := range []struct {
		tenant, model string
		class         spec.Class
		want          string
	}{
		{"acme", "old", spec.Standard, "gold"},
		{"acme", "old", spec.Batch, "gold"},
		{"bolt", "old", spec.Batch, "night"},
		{"bolt", "new", spec.Batch, ""},
		{"bolt", "old", spec.Interactive, ""},
	} {
		p, bit := modelroute.FindPool(s, tc.tenant, tc.model, tc.class)
		if (p == nil) != (tc.want == "") || p != nil && p.Name != tc.want || (bit == 0) != (p == nil) {
			t.Errorf("%+v: %v, %b", tc, p, bit)
		}
	}
	for _, tc := range []struct {
		labels map[string]string
		bits   uint64
	}{
		{nil, 0}, {map[string]string{"tier": "gold", "rack": "7"}, 1}, {map[string]string{"tier": "silver"}, 0}, {map[string]string{"tier": "silver", "shift": "night"}, 2},
	} {
		if got := modelroute.PoolsForLabels(s, tc.labels); got != tc.bits {
			t.Errorf("labels %v are in pools %b, want %b", tc.labels, got, tc.bits)
		}
	}
	many := &spec.Spec{Pools: make([]spec.WorkerPool, 100)} // no validated spec has so many
	if _, bit := modelroute.FindPool(many, "", "", 0); bit != 1 || modelroute.PoolsForLabels(many, nil) != 0 {
		t.Error("pools beyond the bound count")
	}
}

func BenchmarkResolveModel(b *testing.B) {
	s := newSpec(b, "{model: old, weight: 95}, {model: new, weight: 5}, {model: third, weight: 1, when: {header: {name: X-Cohort, value: beta}}}")
	q := modelroute.ModelQuery{Model: "best", Tenant: "acme", Session: "session-17", Header: map[string][]string{"Accept": {"*/*"}, "X-Cohort": {"alpha"}}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = modelroute.ResolveModel(s, &q)
	}
}
