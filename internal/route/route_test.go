package route_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
)

// world is a spec of a zone that stands alone with one alias, "best".
func world(t testing.TB, targets string, more ...string) *spec.Spec {
	t.Helper()
	text := "models: [{name: old}, {name: new}, {name: third}]\naliases:\n  - {name: best, targets: [" + targets + "]}\ntenants: [{name: acme}, {name: bolt}]\n" + strings.Join(more, "")
	s, err := spec.DecodeAlone("world", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func split(old, now float64) string {
	return fmt.Sprintf("{model: old, weight: %v}, {model: new, weight: %v}", old, now)
}

// to resolves and must succeed.
func to(t testing.TB, s *spec.Spec, q route.Ask) route.Answer {
	t.Helper()
	if q.Model == "" {
		q.Model = "best"
	}
	a, err := route.Resolve(s, &q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestCanaryOfFivePercent: of 10,000 sessions 5 % +- 0.5 points go to the canary, and raising it moves sessions into the
// canary only.
func TestCanaryOfFivePercent(t *testing.T) {
	const sessions = 10_000
	five, ten := world(t, split(95, 5)), world(t, split(90, 10))
	var at5, at10, out int
	for i := range sessions {
		q := route.Ask{Session: fmt.Sprintf("session-%d", i), Tenant: "acme", Chance: 0.999}
		a, b := to(t, five, q).Model, to(t, ten, q).Model
		q.Chance = 0
		if again := to(t, five, q).Model; again != a {
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

// TestWeightsMoveOnlyWhatTheyMust, as a property: when one target's weight grows, no session moves to another target, and
// when it falls, no session of another target moves.
func TestWeightsMoveOnlyWhatTheyMust(t *testing.T) {
	weight := rapid.Float64Range(0.01, 100)
	rapid.Check(t, func(rt *rapid.T) {
		targets := []spec.Target{{Model: "old"}, {Model: "new"}, {Model: "third"}}
		for i := range targets {
			targets[i].Weight = weight.Draw(rt, "weight")
		}
		s := &spec.Spec{Models: []spec.Model{{Name: "old"}, {Name: "new"}, {Name: "third"}}, Aliases: []spec.Alias{{Name: "best", Targets: targets}}}
		q := route.Ask{Session: rapid.StringN(1, 20, -1).Draw(rt, "session"), Tenant: rapid.SampledFrom([]string{"acme", "bolt"}).Draw(rt, "tenant")}
		before := to(t, s, q).Model
		at := rapid.IntRange(0, 2).Draw(rt, "which")
		old := targets[at].Weight
		targets[at].Weight = weight.Draw(rt, "now")
		after := to(t, s, q).Model
		if before != after && targets[at].Weight >= old && after != targets[at].Model {
			rt.Fatalf("%s grew and a session moved from %s to %s", targets[at].Model, before, after)
		}
		if before != after && targets[at].Weight <= old && before != targets[at].Model {
			rt.Fatalf("%s fell and a session moved from %s to %s", targets[at].Model, before, after)
		}
		slices.Reverse(targets) // the order of targets says nothing
		if again := to(t, s, q).Model; again != after {
			rt.Fatalf("in another order it goes to %s, not %s", again, after)
		}
	})
}

// TestWithoutAKeyByWeight: a request that nothing keeps together with others goes by chance.
func TestWithoutAKeyByWeight(t *testing.T) {
	s := world(t, split(3, 1))
	count := map[string]int{}
	for i := range 1000 {
		a := to(t, s, route.Ask{Tenant: "acme", Client: "192.0.2.1", Chance: float64(i) / 1000})
		count[a.Model]++
		if !strings.Contains(a.Why(), "by chance") {
			t.Fatal(a.Why())
		}
	}
	if count["old"] != 750 || count["new"] != 250 {
		t.Errorf("shares are %v", count)
	}
}

// TestWhatKeepsARequest: the session, else the user, else what the alias says.
func TestWhatKeepsARequest(t *testing.T) {
	for _, tc := range []struct {
		sticky string
		ask    route.Ask
		kept   string
	}{
		{"session", route.Ask{Session: "s", User: "u", Client: "c"}, "session"},
		{"session", route.Ask{User: "u", Client: "c"}, "user"},
		{"session", route.Ask{Client: "c"}, ""},
		{"client", route.Ask{Session: "s", Client: "c"}, "session"},
		{"client", route.Ask{Client: "c"}, "client address"},
		{"client", route.Ask{}, ""},
		{"tenant", route.Ask{Session: "s", Client: "c"}, "tenant"},
		{"none", route.Ask{Session: "s", User: "u", Client: "c"}, ""},
	} {
		s := world(t, split(1, 1))
		s.Aliases[0].Sticky = tc.sticky
		moved := false
		for i := range 100 {
			tc.ask.Tenant = "acme"
			tc.ask.Chance = float64(i%2) * 0.9
			moved = moved || to(t, s, tc.ask).Model != to(t, s, route.Ask{Tenant: "acme", Session: tc.ask.Session, User: tc.ask.User, Client: tc.ask.Client}).Model
		}
		a := to(t, s, tc.ask)
		want := "kept there by its " + tc.kept
		if tc.kept == "" {
			want = "by chance"
		}
		if moved != (tc.kept == "") || !strings.Contains(a.Why(), want) {
			t.Errorf("%+v: moved %v, %s", tc, moved, a.Why())
		}
	}
}

// TestBlueGreen: a switch of the weights 100 and 0 moves every request, with a session or without.
func TestBlueGreen(t *testing.T) {
	blue, green := world(t, split(100, 0)), world(t, split(0, 100))
	rapid.Check(t, func(rt *rapid.T) {
		q := route.Ask{Session: rapid.String().Draw(rt, "session"), User: rapid.String().Draw(rt, "user"), Chance: rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(rt, "chance")}
		if a, b := to(t, blue, q).Model, to(t, green, q).Model; a != "old" || b != "new" {
			rt.Fatalf("before the switch %s, after it %s", a, b)
		}
	})
}

// TestConditions: targets whose conditions are met win over the others, and nobody else gets there.
func TestConditions(t *testing.T) {
	const beta = "{model: old, weight: 1}, {model: new, weight: 1, when: {header: {name: x-cohort, value: beta}}}, {model: third, weight: 1, when: {tenants: [bolt]}}"
	header := func(v string) map[string][]string { return map[string][]string{"X-Cohort": {v}} }
	for _, tc := range []struct {
		name, targets, want, rule string
		ask                       route.Ask
	}{
		{"nobody's", beta, "old", route.RuleWeight, route.Ask{Tenant: "acme"}},
		{"another value", beta, "old", route.RuleWeight, route.Ask{Tenant: "acme", Header: header("alpha")}},
		{"by header", beta, "new", route.RuleCondition, route.Ask{Tenant: "acme", Header: header("beta")}},
		{"by tenant", beta, "third", route.RuleCondition, route.Ask{Tenant: "bolt"}},
		{"everybody's cohort", "{model: old, weight: 9}, {model: new, weight: 1, when: {cohort: 100}}", "new", route.RuleCondition, route.Ask{Tenant: "acme"}},
		{"both or neither", "{model: old, weight: 9}, {model: new, weight: 1, when: {tenants: [bolt], header: {name: X-Cohort}}}", "old", route.RuleWeight, route.Ask{Tenant: "bolt"}},
		{"both", "{model: old, weight: 9}, {model: new, weight: 1, when: {tenants: [bolt], header: {name: X-Cohort}}}", "new", route.RuleCondition, route.Ask{Tenant: "bolt", Header: header("")}},
		{"switched off", "{model: old, weight: 9}, {model: new, weight: 0, when: {tenants: [acme]}}", "old", route.RuleWeight, route.Ask{Tenant: "acme"}},
	} {
		a := to(t, world(t, tc.targets), tc.ask)
		if a.Model != tc.want || a.Rule != tc.rule {
			t.Errorf("%s: %s by %s (%s), want %s by %s", tc.name, a.Model, a.Rule, a.Why(), tc.want, tc.rule)
		}
	}
}

// TestWeightsAmongThoseWhoseConditionsAreMet: one tenant's share is split, the others' stays whole.
func TestWeightsAmongThoseWhoseConditionsAreMet(t *testing.T) {
	s := world(t, "{model: old, weight: 50}, {model: new, weight: 30, when: {tenants: [bolt]}}, {model: old, weight: 70, when: {tenants: [bolt]}}")
	count := map[string]int{}
	for i := range 10_000 {
		count["bolt "+to(t, s, route.Ask{Tenant: "bolt", Session: fmt.Sprint(i)}).Model]++
		count["acme "+to(t, s, route.Ask{Tenant: "acme", Session: fmt.Sprint(i)}).Model]++
	}
	if n := count["bolt new"]; count["acme old"] != 10_000 || n < 2850 || n > 3150 {
		t.Errorf("shares are %v", count)
	}
}

// TestCohortIsAShareOfTenants: its size is right, and a larger one holds a smaller one.
func TestCohortIsAShareOfTenants(t *testing.T) {
	small := world(t, "{model: old, weight: 1}, {model: new, weight: 1, when: {cohort: 10}}")
	large := world(t, "{model: old, weight: 1}, {model: new, weight: 1, when: {cohort: 20}}")
	in10, in20 := 0, 0
	for i := range 10_000 {
		q := route.Ask{Tenant: fmt.Sprintf("tenant-%d", i)}
		a, b := to(t, small, q).Model == "new", to(t, large, q).Model == "new"
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

func TestPins(t *testing.T) {
	s := world(t, "{model: old, weight: 100}, {model: new, weight: 0}, {model: new, weight: 1, when: {tenants: [bolt]}}")
	if a := to(t, s, route.Ask{Pin: "new", Tenant: "acme"}); a.Model != "new" || a.Rule != route.RulePin || !strings.Contains(a.Why(), "pin") {
		t.Errorf("pinned to %s by %s", a.Model, a.Why())
	}
	if a := to(t, s, route.Ask{Model: "old", Pin: "old"}); a.Model != "old" || a.Rule != route.RuleName {
		t.Errorf("a model pinned to itself is %+v", a)
	}
	for _, q := range []route.Ask{{Model: "best", Pin: "third"}, {Model: "old", Pin: "new"}, {Model: "best", Pin: strings.Repeat("x", 10_000)}} {
		_, err := route.Resolve(s, &q)
		var not *route.NotATarget
		if !errors.As(err, &not) || len(err.Error()) > 400 || q.Model == "best" && !slices.Equal(not.Targets, []string{"old", "new"}) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := route.Resolve(s, &route.Ask{Model: "nobody"}); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestResolveAllocatesNothing on the way of a request.
func TestResolveAllocatesNothing(t *testing.T) {
	s := world(t, "{model: old, weight: 9}, {model: new, weight: 1}, {model: third, weight: 1, when: {tenants: [bolt], header: {name: x-cohort}}}")
	q := route.Ask{Model: "best", Tenant: "bolt", Session: "s", Header: map[string][]string{"X-Cohort": {"a"}, "Accept": {"b"}}}
	if n := testing.AllocsPerRun(100, func() { _, _ = route.Resolve(s, &q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFallbacks(t *testing.T) {
	s, err := spec.DecodeAlone("s", []byte(`models: [{name: a, fallback: b}, {name: b, fallback: c}, {name: c}]
tenants: [{name: yes, fallback: true}, {name: no}, {name: narrow, fallback: true, models: [a, c]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	chain := func(tenant, model string) (names []string) {
		for m := range route.Fallbacks(s, s.Tenant(tenant), s.ModelNamed(model)) {
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
	s.Models[2].Fallback = "a" // no validated spec has a circle; following one must end all the same
	if got := chain("yes", "a"); len(got) > 3 {
		t.Errorf("a circle gives %v", got)
	}
}

func TestPools(t *testing.T) {
	s := world(t, split(1, 0), `pools:
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
		p, bit := route.PoolOf(s, tc.tenant, tc.model, tc.class)
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
		if got := route.PoolsWith(s, tc.labels); got != tc.bits {
			t.Errorf("labels %v are in pools %b, want %b", tc.labels, got, tc.bits)
		}
	}
	many := &spec.Spec{Pools: make([]spec.Pool, 100)} // no validated spec has so many
	if _, bit := route.PoolOf(many, "", "", 0); bit != 1 || route.PoolsWith(many, nil) != 0 {
		t.Error("pools beyond the bound count")
	}
}

func BenchmarkResolve(b *testing.B) {
	s := world(b, "{model: old, weight: 95}, {model: new, weight: 5}, {model: third, weight: 1, when: {header: {name: X-Cohort, value: beta}}}")
	q := route.Ask{Model: "best", Tenant: "acme", Session: "session-17", Header: map[string][]string{"Accept": {"*/*"}, "X-Cohort": {"alpha"}}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = route.Resolve(s, &q)
	}
}
