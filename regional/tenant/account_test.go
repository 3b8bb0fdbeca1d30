package tenant_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// TestConcurrentStreamsCannotOvershoot: however many requests are under way at a time, what they reserve never exceeds the
// bucket and its refill, and what is used of a day's budget never exceeds it where estimates are not exceeded.
func TestConcurrentStreamsCannotOvershoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		who := spec.Tenant{
			Limits: spec.Limits{TokensPerMinute: rapid.IntRange(100, 5000).Draw(t, "tpm")},
			Budget: spec.Budget{TokensPerDay: rapid.Int64Range(100, 20_000).Draw(t, "day"), WhenSpent: spec.SpentStop},
		}
		terms := tenant.Terms{Whole: who.Allowance(), Static: who.Allowance(), Budget: &who.Budget}
		l, now := newLimiter(), start()
		type stream struct {
			lease tenant.Lease
			ask   int
		}
		var open []stream
		var admitted, used int64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "gap")) * time.Millisecond)
			if n := rapid.IntRange(1, who.Limits.TokensPerMinute).Draw(t, "ask"); rapid.Bool().Draw(t, "begin") {
				if lease, _, ok := l.Admit("a", terms, ask(n), now); ok {
					open, admitted = append(open, stream{lease, n}), admitted+int64(n)
				}
			} else if len(open) > 0 {
				last := open[len(open)-1]
				open = open[:len(open)-1]
				truth := rapid.IntRange(0, last.ask).Draw(t, "truth")
				l.Settle(last.lease, ask(truth), now)
				used, admitted = used+int64(truth), admitted-int64(last.ask-truth)
			}
			if most := float64(who.Limits.TokensPerMinute) * (1 + now.Sub(start()).Minutes()); float64(admitted) > most+1 {
				t.Fatalf("%d tokens are promised or used after %v of %d a minute", admitted, now.Sub(start()), who.Limits.TokensPerMinute)
			}
			if admitted > who.Budget.TokensPerDay {
				t.Fatalf("%d tokens are promised or used of a budget of %d", admitted, who.Budget.TokensPerDay)
			}
		}
	})
}

// TestBudgetsOfTheDay: a budget stops or slows a tenant, counts what is under way, and is new the next day.
func TestBudgetsOfTheDay(t *testing.T) {
	for _, when := range []string{spec.SpentStop, spec.SpentThrottle} {
		who := spec.Tenant{Budget: spec.Budget{DollarsPerDay: 0.001, WhenSpent: when}} // 1000 millionths
		terms := tenant.Terms{Whole: who.Allowance(), Static: who.Allowance(), Budget: &who.Budget}
		l, now := newLimiter(), start()
		first, _, ok := l.Admit("a", terms, tenant.Ask{Tokens: 1, Micros: 600}, now)
		if !ok || first.Throttled {
			t.Fatalf("%s: the first is not let in (%+v)", when, first)
		}
		if _, d, ok := l.Admit("a", terms, tenant.Ask{Tokens: 1, Micros: 600}, now); ok || when == spec.SpentStop && d.Code != openai.CodeQuota {
			t.Fatalf("%s: what is under way is not counted (%+v)", when, d)
		}
		l.Settle(first, tenant.Ask{Tokens: 1, Micros: 900}, now)
		second, d, ok := l.Admit("a", terms, tenant.Ask{Tokens: 1, Micros: 600}, now)
		if ok != (when == spec.SpentThrottle) || ok && !second.Throttled {
			t.Fatalf("%s: over the budget: %v %+v %+v", when, ok, second, d)
		}
		if ok {
			if _, d, ok := l.Admit("a", terms, tenant.Ask{Tokens: 1, Micros: 600}, now); ok || d.Code != openai.CodeConcurrency {
				t.Fatalf("two at a time when throttled (%+v)", d)
			}
			l.Settle(second, tenant.Ask{}, now)
		} else if d.Retry != who.Budget.DayEnds(now) {
			t.Errorf("to be tried again in %v, the day ends in %v", d.Retry, who.Budget.DayEnds(now))
		}
		if x, _, ok := l.Admit("a", terms, tenant.Ask{Tokens: 1, Micros: 600}, now.Add(24*time.Hour)); !ok || x.Throttled {
			t.Errorf("%s: the next day has no budget of its own", when)
		}
	}
}

// TestDaysAreRestored: what was used, and the leader's cap, stand again after a restart.
func TestDaysAreRestored(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000, WhenSpent: spec.SpentStop}}
	terms := tenant.Terms{Whole: who.Allowance(), Static: spec.Allowance{spec.DayTokens: 500}, Shared: true, Budget: &who.Budget}
	now := start()
	day := who.Budget.Day(now)
	leases := tenant.NewLeases(false, now)
	leases.Take(tenant.Grant{Term: 1, Number: 2, Parts: map[string]tenant.Part{"a": {Day: day, Part: spec.Allowance{spec.DayTokens: 100}}}}, now, now)
	l := tenant.NewLimiter(leases)
	lease, _, ok := l.Admit("a", terms, ask(60), now)
	if !ok {
		t.Fatal("not let in")
	}
	l.Settle(lease, ask(60), now)
	days := l.Days()
	if len(days) != 1 || days[0] != (tenant.Day{Tenant: "a", Day: day, Tokens: 60, Leased: true, CapTokens: 100}) {
		t.Fatalf("%+v", days)
	}
	later := now.Add(time.Hour)
	again := tenant.NewLimiter(tenant.NewLeases(false, later))
	again.Restore(days)
	if _, _, ok := again.Admit("a", terms, ask(41), later); ok {
		t.Error("after a restart more than the cap is let in")
	}
	if _, _, ok := again.Admit("a", terms, ask(40), later); !ok {
		t.Error("after a restart the cap is not what it was")
	}
	again.Restore([]tenant.Day{{Tenant: "b", Tokens: -5}})
	if _, _, ok := again.Admit("b", terms, ask(501), later); ok {
		t.Error("a record with negative use was taken")
	}
}

// TestRestoreThenDaysIsTheIdentity: what was restored is listed as it was, however often that happens, until its tenant asks or
// its terms come; then a tenant without a budget is left out.
func TestRestoreThenDaysIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var days []tenant.Day
		for i := range rapid.IntRange(0, 20).Draw(t, "tenants") {
			d := tenant.Day{Tenant: fmt.Sprintf("t%02d", i), Day: rapid.Int64Range(0, 30_000).Draw(t, "day")}
			d.Tokens, d.Micros = rapid.Int64Range(0, 1<<40).Draw(t, "tokens"), rapid.Int64Range(1, 1<<40).Draw(t, "micros")
			if d.Leased = rapid.Bool().Draw(t, "leased"); d.Leased {
				d.Held, d.CapTokens, d.CapMicros = rapid.Bool().Draw(t, "held"), rapid.Int64Range(0, 1<<40).Draw(t, "cap"), rapid.Int64Range(0, 1<<40).Draw(t, "cap")
			}
			days = append(days, d)
		}
		got := days
		for range 3 {
			l := newLimiter()
			l.Restore(got)
			l.Uses(start())
			if got = l.Days(); !slices.Equal(got, days) {
				t.Fatalf("after a restart %+v are listed, before %+v", got, days)
			}
		}
	})
	l := newLimiter()
	l.Restore([]tenant.Day{{Tenant: "a", Day: 1, Tokens: 5}, {Tenant: "b", Day: 1, Tokens: 5}, {Tenant: "gone", Day: 1, Tokens: 5}})
	l.SetTerms(func(name string) (tenant.Terms, bool) { return terms(spec.Limits{RequestsPerMinute: 1}), name == "b" })
	if got := l.Days(); len(got) != 2 || got[0].Tenant != "a" || got[1].Tenant != "gone" {
		t.Errorf("with the terms of one that has no budget %+v are listed", got)
	}
}

// TestUsesOfTheRestored: what a quiet tenant has used of a shared budget is told as soon as its terms are known.
func TestUsesOfTheRestored(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000}}
	terms := tenant.Terms{Whole: who.Allowance(), Static: who.Allowance(), Shared: true, Budget: &who.Budget}
	l := newLimiter()
	l.Restore([]tenant.Day{{Tenant: "a", Day: who.Budget.Day(start()), Tokens: 70}})
	l.SetTerms(func(string) (tenant.Terms, bool) { return terms, true })
	if got := l.Uses(start()); len(got) != 1 || got[0].Tenant != "a" || got[0].DayTokens != 70 {
		t.Errorf("%+v", got)
	}
}

// TestAHoldOutlastsARestart: what a hold has made void does not come back when the gateway starts again.
func TestAHoldOutlastsARestart(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000, WhenSpent: spec.SpentStop}}
	terms := tenant.Terms{Whole: who.Allowance(), Static: spec.Allowance{spec.DayTokens: 500}, Shared: true, Budget: &who.Budget}
	now := start()
	day := who.Budget.Day(now)
	leases := tenant.NewLeases(false, now)
	leases.Take(tenant.Grant{Term: 1, Number: 2, Parts: map[string]tenant.Part{"a": {Day: day, Part: spec.Allowance{spec.DayTokens: 900}}}}, now, now)
	l := tenant.NewLimiter(leases)
	lease, _, ok := l.Admit("a", terms, ask(60), now)
	if !ok {
		t.Fatal("not let in")
	}
	l.Settle(lease, ask(60), now)
	leases.Take(tenant.Grant{Term: 2, Number: 1, Hold: true}, now, now)
	days := l.Days()
	later := now.Add(time.Hour)
	leases = tenant.NewLeases(false, later)
	again := tenant.NewLimiter(leases)
	again.Restore(days)
	if _, _, ok := again.Admit("a", terms, ask(441), later); ok {
		t.Error("after a restart more than the static share is let in")
	}
	if got := again.Days(); len(got) != 1 || got[0] != days[0] {
		t.Errorf("after a restart it writes down %+v, before it %+v", got, days)
	}
	leases.Take(tenant.Grant{Term: 2, Number: 2, Parts: map[string]tenant.Part{"a": {Day: day, Part: spec.Allowance{spec.DayTokens: 800}}}}, later, later)
	if _, _, ok := again.Admit("a", terms, ask(740), later); !ok {
		t.Error("the leader's next list does not end the hold")
	}
}

// TestUsesAreBounded: a summary tells of the tenants that matter most, and of the rest in one entry.
func TestUsesAreBounded(t *testing.T) {
	who := spec.Tenant{Limits: spec.Limits{RequestsPerMinute: 1000}}
	terms := tenant.Terms{Whole: who.Allowance(), Static: who.Allowance(), Shared: true, Budget: &who.Budget}
	leases := tenant.NewLeases(false, start())
	leases.Take(tenant.Grant{Term: 1, Number: 2, Parts: map[string]tenant.Part{"t0000": {}}}, start(), start())
	l := tenant.NewLimiter(leases)
	for n := range 2 * capacity.MaxUses {
		for range 1 + n%3 {
			lease, _, _ := l.Admit(fmt.Sprintf("t%04d", n), terms, ask(100*n), start())
			l.Settle(lease, ask(1), start())
		}
	}
	uses := l.Uses(start())
	if len(uses) != capacity.MaxUses || uses[0].Tenant != "" || uses[0].RequestsMilli == 0 || uses[1].Tenant != "t0000" || uses[len(uses)-1].Tenant != "t0511" {
		t.Errorf("%d uses, %+v, %+v, %+v", len(uses), uses[0], uses[1], uses[len(uses)-1])
	}
	later := start().Add(25 * time.Hour)
	if uses = l.Uses(later); len(uses) > capacity.MaxUses {
		t.Errorf("%d uses", len(uses))
	}
	l.Uses(later.Add(time.Minute))
	if uses = l.Uses(later.Add(2 * time.Minute)); len(uses) != 0 {
		t.Errorf("%d idle tenants are still told of, such as %+v", len(uses), uses[0])
	}
}

// TestSmallLeasesStillBegin: a floor of less than one request a minute lets one request through, and says to try again soon.
func TestSmallLeasesStillBegin(t *testing.T) {
	who := spec.Tenant{Limits: spec.Limits{RequestsPerMinute: 10}}
	terms := tenant.Terms{Whole: who.Allowance(), Static: spec.Allowance{spec.Requests: 5000}, Shared: true, Budget: &who.Budget}
	l := tenant.NewLimiter(tenant.NewLeases(false, start()))
	if _, _, ok := l.Admit("a", terms, ask(1), start()); !ok {
		t.Fatal("the first request waits for a lease")
	}
	if _, d, ok := l.Admit("a", terms, ask(1), start()); ok || d.Retry > 6*time.Second {
		t.Errorf("the second is let in (%v), or is to wait for %v while the whole limit would do in 6s", ok, d.Retry)
	}
}
