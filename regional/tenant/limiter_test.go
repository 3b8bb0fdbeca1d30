package tenant_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
	"pgregory.net/rapid"
)

func startTime() time.Time { return time.Unix(1_000_000, 0) }

// termsOf returns terms of limits that are not shared.
func termsOf(lim spec.TenantLimits) tenant.Terms {
	t := spec.Tenant{Limits: lim}
	return tenant.Terms{Whole: t.TotalQuota(), Static: t.TotalQuota(), Budget: &t.Budget}
}

func newLimiter() *tenant.Limiter { return tenant.NewLimiter(tenant.NewLeases(true, startTime())) }

func costOf(tokens int) tenant.RequestCost { return tenant.RequestCost{Tokens: tokens} }

func TestLimitsRefuseWithRetryDelay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lim   spec.TenantLimits
		costs []int
		code  string // of the last denial
		retry time.Duration
	}{
		{"unlimited", spec.TenantLimits{}, []int{1 << 30, 1 << 30, 1 << 30}, "", 0},
		{"requests", spec.TenantLimits{RequestsPerMinute: 2}, []int{1, 1, 1}, openai.CodeRequests, 30 * time.Second},
		{"tokens", spec.TenantLimits{TokensPerMinute: 100}, []int{60, 60}, openai.CodeTokens, 12 * time.Second},
		{"longer than a minute's tokens waits for a full bucket", spec.TenantLimits{TokensPerMinute: 100}, []int{500}, "", 0},
		{"concurrency", spec.TenantLimits{Concurrency: 2}, []int{1, 1, 1}, openai.CodeConcurrency, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimiter()
			for i, c := range tc.costs {
				_, d, ok := l.AdmitRequest("a", termsOf(tc.lim), costOf(c), startTime())
				last := i == len(tc.costs)-1
				if ok != (!last || tc.code == "") {
					t.Fatalf("request %d admitted: %v (%+v)", i, ok, d)
				}
				if !ok && (d.Code != tc.code || d.Retry != tc.retry) {
					t.Fatalf("denial is %+v, want %s in %v", d, tc.code, tc.retry)
				}
			}
			if _, _, ok := l.AdmitRequest("other", termsOf(tc.lim), costOf(1), startTime()); !ok {
				t.Fatal("one tenant's use denied another")
			}
		})
	}
}

func TestSettleReturnsWhatWasNotUsed(t *testing.T) {
	l, lim := newLimiter(), spec.TenantLimits{TokensPerMinute: 100, RequestsPerMinute: 10, Concurrency: 1}
	lease, _, _ := l.AdmitRequest("a", termsOf(lim), costOf(90), startTime())
	l.SettleRequest(lease, costOf(30), startTime())
	if left := l.RemainingFor("a", termsOf(lim), startTime()); left.Tokens != 70 || left.Requests != 9 || left.ResetTokens != 18*time.Second || left.ResetRequests != 6*time.Second {
		t.Fatalf("left is %+v", left)
	}
	lease, _, ok := l.AdmitRequest("a", termsOf(lim), costOf(10), startTime())
	if !ok {
		t.Fatal("a settled request still counts as running")
	}
	l.SettleRequest(lease, costOf(200), startTime()) // far above the reservation: overdrawn
	if _, d, ok := l.AdmitRequest("a", termsOf(lim), costOf(1), startTime()); ok || d.Code != openai.CodeTokens {
		t.Fatalf("an overdrawn tenant was admitted (%+v)", d)
	}
	if _, _, ok := l.AdmitRequest("a", termsOf(lim), costOf(1), startTime().Add(3*time.Minute)); !ok {
		t.Fatal("a debt outlives the minutes that pay it")
	}
}

// TestUseInAnyMinuteIsBounded: usage in any minute is at most the bucket plus its refill.
func TestUseInAnyMinuteIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := spec.TenantLimits{RequestsPerMinute: rapid.IntRange(1, 50).Draw(t, "rpm"), TokensPerMinute: rapid.IntRange(1, 5000).Draw(t, "tpm")}
		l, now := newLimiter(), startTime()
		requests, tokens := 0, 0
		for now.Sub(startTime()) < time.Minute {
			cost := rapid.IntRange(1, 1000).Draw(t, "cost")
			if lease, _, ok := l.AdmitRequest("a", termsOf(lim), costOf(cost), now); ok {
				requests++
				tokens += min(cost, lim.TokensPerMinute)
				l.SettleRequest(lease, costOf(min(cost, lim.TokensPerMinute)), now)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "gap")) * time.Millisecond)
		}
		if requests > 2*lim.RequestsPerMinute || tokens > 2*lim.TokensPerMinute {
			t.Fatalf("%d requests and %d tokens in a minute, limits %+v", requests, tokens, lim)
		}
	})
}

func TestRetainDropsOnlyIdleTenants(t *testing.T) {
	l, lim := newLimiter(), spec.TenantLimits{RequestsPerMinute: 1}
	lease, _, _ := l.AdmitRequest("busy", termsOf(lim), costOf(1), startTime())
	idle, _, _ := l.AdmitRequest("idle", termsOf(lim), costOf(1), startTime())
	l.SettleRequest(idle, costOf(1), startTime())
	l.RetainTenants(func(string) bool { return false })
	if _, _, ok := l.AdmitRequest("idle", termsOf(lim), costOf(1), startTime()); !ok {
		t.Error("the idle tenant was kept")
	}
	if _, _, ok := l.AdmitRequest("busy", termsOf(lim), costOf(1), startTime()); ok {
		t.Error("the busy tenant was forgotten")
	}
	l.SettleRequest(lease, costOf(1), startTime())
}

// TestResetAcceptsLowerTerms: after the global cluster was restored its Raft terms start again, and its grants must
// apply.
func TestResetAcceptsLowerTerms(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := tenant.NewLeases(false, now)
	if !l.ApplyGrant(tenant.LeaseGrant{Term: 40, Number: 7}, now, now) || l.ApplyGrant(tenant.LeaseGrant{Term: 2, Number: 1}, now, now) {
		t.Fatal("a grant of a lower term counts without a reset")
	}
	l.ResetTerm()
	if !l.ApplyGrant(tenant.LeaseGrant{Term: 2, Number: 1}, now, now) {
		t.Error("a grant of a lower term does not count after a reset")
	}
}

// TestConcurrentStreamsCannotOvershoot: with any number of concurrent requests, reservations never exceed the bucket
// and its refill, and usage never exceeds a day's budget if estimates are not exceeded.
func TestConcurrentStreamsCannotOvershoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		who := spec.Tenant{
			Limits: spec.TenantLimits{TokensPerMinute: rapid.IntRange(100, 5000).Draw(t, "tpm")},
			Budget: spec.Budget{TokensPerDay: rapid.Int64Range(100, 20_000).Draw(t, "day"), WhenSpent: spec.SpentStop},
		}
		terms := tenant.Terms{Whole: who.TotalQuota(), Static: who.TotalQuota(), Budget: &who.Budget}
		l, now := newLimiter(), startTime()
		type stream struct {
			lease tenant.Reservation
			ask   int
		}
		var open []stream
		var admitted, used int64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "gap")) * time.Millisecond)
			if n := rapid.IntRange(1, who.Limits.TokensPerMinute).Draw(t, "ask"); rapid.Bool().Draw(t, "begin") {
				if lease, _, ok := l.AdmitRequest("a", terms, costOf(n), now); ok {
					open, admitted = append(open, stream{lease, n}), admitted+int64(n)
				}
			} else if len(open) > 0 {
				last := open[len(open)-1]
				open = open[:len(open)-1]
				truth := rapid.IntRange(0, last.ask).Draw(t, "truth")
				l.SettleRequest(last.lease, costOf(truth), now)
				used, admitted = used+int64(truth), admitted-int64(last.ask-truth)
			}
			if most := float64(who.Limits.TokensPerMinute) * (1 + now.Sub(startTime()).Minutes()); float64(admitted) > most+1 {
				t.Fatalf("%d tokens are promised or used after %v of %d a minute", admitted, now.Sub(startTime()), who.Limits.TokensPerMinute)
			}
			if admitted > who.Budget.TokensPerDay {
				t.Fatalf("%d tokens are promised or used of a budget of %d", admitted, who.Budget.TokensPerDay)
			}
		}
	})
}

// TestDayBudgetStopsOrThrottles: a budget stops or slows a tenant, includes running requests, and is renewed the next
// day.
func TestDayBudgetStopsOrThrottles(t *testing.T) {
	for _, when := range []string{spec.SpentStop, spec.SpentThrottle} {
		who := spec.Tenant{Budget: spec.Budget{DollarsPerDay: 0.001, WhenSpent: when}} // 1000 millionths
		terms := tenant.Terms{Whole: who.TotalQuota(), Static: who.TotalQuota(), Budget: &who.Budget}
		l, now := newLimiter(), startTime()
		first, _, ok := l.AdmitRequest("a", terms, tenant.RequestCost{Tokens: 1, Micros: 600}, now)
		if !ok || first.Throttled {
			t.Fatalf("%s: the first is not let in (%+v)", when, first)
		}
		if _, d, ok := l.AdmitRequest("a", terms, tenant.RequestCost{Tokens: 1, Micros: 600}, now); ok || when == spec.SpentStop && d.Code != openai.CodeQuota {
			t.Fatalf("%s: what is under way is not counted (%+v)", when, d)
		}
		l.SettleRequest(first, tenant.RequestCost{Tokens: 1, Micros: 900}, now)
		second, d, ok := l.AdmitRequest("a", terms, tenant.RequestCost{Tokens: 1, Micros: 600}, now)
		if ok != (when == spec.SpentThrottle) || ok && !second.Throttled {
			t.Fatalf("%s: over the budget: %v %+v %+v", when, ok, second, d)
		}
		if ok {
			if _, d, ok := l.AdmitRequest("a", terms, tenant.RequestCost{Tokens: 1, Micros: 600}, now); ok || d.Code != openai.CodeConcurrency {
				t.Fatalf("two at a time when throttled (%+v)", d)
			}
			l.SettleRequest(second, tenant.RequestCost{}, now)
		} else if d.Retry != who.Budget.TimeToDayEnd(now) {
			t.Errorf("to be tried again in %v, the day ends in %v", d.Retry, who.Budget.TimeToDayEnd(now))
		}
		if x, _, ok := l.AdmitRequest("a", terms, tenant.RequestCost{Tokens: 1, Micros: 600}, now.Add(24*time.Hour)); !ok || x.Throttled {
			t.Errorf("%s: the next day has no budget of its own", when)
		}
	}
}

// TestDayUseIsRestored: after a restart the day's usage and the leader's cap are in force again.
func TestDayUseIsRestored(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000, WhenSpent: spec.SpentStop}}
	terms := tenant.Terms{Whole: who.TotalQuota(), Static: spec.Quota{spec.ResourceDayTokens: 500}, Shared: true, Budget: &who.Budget}
	now := startTime()
	day := who.Budget.DayNumber(now)
	leases := tenant.NewLeases(false, now)
	leases.ApplyGrant(tenant.LeaseGrant{Term: 1, Number: 2, Leases: map[string]tenant.TenantLease{"a": {Day: day, Limits: spec.Quota{spec.ResourceDayTokens: 100}}}}, now, now)
	l := tenant.NewLimiter(leases)
	lease, _, ok := l.AdmitRequest("a", terms, costOf(60), now)
	if !ok {
		t.Fatal("not let in")
	}
	l.SettleRequest(lease, costOf(60), now)
	days := l.ListDayUse()
	if len(days) != 1 || days[0] != (tenant.DayUse{Tenant: "a", Day: day, Tokens: 60, Leased: true, CapTokens: 100}) {
		t.Fatalf("%+v", days)
	}
	later := now.Add(time.Hour)
	again := tenant.NewLimiter(tenant.NewLeases(false, later))
	again.RestoreDayUse(days)
	if _, _, ok := again.AdmitRequest("a", terms, costOf(41), later); ok {
		t.Error("after a restart more than the cap is let in")
	}
	if _, _, ok := again.AdmitRequest("a", terms, costOf(40), later); !ok {
		t.Error("after a restart the cap is not what it was")
	}
	again.RestoreDayUse([]tenant.DayUse{{Tenant: "b", Tokens: -5}})
	if _, _, ok := again.AdmitRequest("b", terms, costOf(501), later); ok {
		t.Error("a record with negative use was taken")
	}
}

// TestRestoredDayUseIsListedUnchanged: restored usage is listed unchanged, any number of times, until its tenant
// sends a request or its terms are set; then a tenant without a budget is dropped.
func TestRestoredDayUseIsListedUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var days []tenant.DayUse
		for i := range rapid.IntRange(0, 20).Draw(t, "tenants") {
			d := tenant.DayUse{Tenant: fmt.Sprintf("t%02d", i), Day: rapid.Int64Range(0, 30_000).Draw(t, "day")}
			d.Tokens, d.Micros = rapid.Int64Range(0, 1<<40).Draw(t, "tokens"), rapid.Int64Range(1, 1<<40).Draw(t, "micros")
			if d.Leased = rapid.Bool().Draw(t, "leased"); d.Leased {
				d.Held, d.CapTokens, d.CapMicros = rapid.Bool().Draw(t, "held"), rapid.Int64Range(0, 1<<40).Draw(t, "cap"), rapid.Int64Range(0, 1<<40).Draw(t, "cap")
			}
			days = append(days, d)
		}
		got := days
		for range 3 {
			l := newLimiter()
			l.RestoreDayUse(got)
			l.ListUses(startTime())
			if got = l.ListDayUse(); !slices.Equal(got, days) {
				t.Fatalf("after a restart %+v are listed, before %+v", got, days)
			}
		}
	})
	l := newLimiter()
	l.RestoreDayUse([]tenant.DayUse{{Tenant: "a", Day: 1, Tokens: 5}, {Tenant: "b", Day: 1, Tokens: 5}, {Tenant: "gone", Day: 1, Tokens: 5}})
	l.SetTerms(func(name string) (tenant.Terms, bool) {
		return termsOf(spec.TenantLimits{RequestsPerMinute: 1}), name == "b"
	})
	if got := l.ListDayUse(); len(got) != 2 || got[0].Tenant != "a" || got[1].Tenant != "gone" {
		t.Errorf("with the terms of one that has no budget %+v are listed", got)
	}
}

// TestRestoredUseIsReportedOnceTermsAreKnown: the usage of a shared budget by an inactive tenant is reported as soon
// as its terms are known.
func TestRestoredUseIsReportedOnceTermsAreKnown(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000}}
	terms := tenant.Terms{Whole: who.TotalQuota(), Static: who.TotalQuota(), Shared: true, Budget: &who.Budget}
	l := newLimiter()
	l.RestoreDayUse([]tenant.DayUse{{Tenant: "a", Day: who.Budget.DayNumber(startTime()), Tokens: 70}})
	l.SetTerms(func(string) (tenant.Terms, bool) { return terms, true })
	if got := l.ListUses(startTime()); len(got) != 1 || got[0].Tenant != "a" || got[0].DayTokens != 70 {
		t.Errorf("%+v", got)
	}
}

// TestHoldSurvivesRestart: what a hold revoked stays revoked when the gateway restarts.
func TestHoldSurvivesRestart(t *testing.T) {
	who := spec.Tenant{Budget: spec.Budget{TokensPerDay: 1000, WhenSpent: spec.SpentStop}}
	terms := tenant.Terms{Whole: who.TotalQuota(), Static: spec.Quota{spec.ResourceDayTokens: 500}, Shared: true, Budget: &who.Budget}
	now := startTime()
	day := who.Budget.DayNumber(now)
	leases := tenant.NewLeases(false, now)
	leases.ApplyGrant(tenant.LeaseGrant{Term: 1, Number: 2, Leases: map[string]tenant.TenantLease{"a": {Day: day, Limits: spec.Quota{spec.ResourceDayTokens: 900}}}}, now, now)
	l := tenant.NewLimiter(leases)
	lease, _, ok := l.AdmitRequest("a", terms, costOf(60), now)
	if !ok {
		t.Fatal("not let in")
	}
	l.SettleRequest(lease, costOf(60), now)
	leases.ApplyGrant(tenant.LeaseGrant{Term: 2, Number: 1, Hold: true}, now, now)
	days := l.ListDayUse()
	later := now.Add(time.Hour)
	leases = tenant.NewLeases(false, later)
	again := tenant.NewLimiter(leases)
	again.RestoreDayUse(days)
	if _, _, ok := again.AdmitRequest("a", terms, costOf(441), later); ok {
		t.Error("after a restart more than the static share is let in")
	}
	if got := again.ListDayUse(); len(got) != 1 || got[0] != days[0] {
		t.Errorf("after a restart it writes down %+v, before it %+v", got, days)
	}
	leases.ApplyGrant(tenant.LeaseGrant{Term: 2, Number: 2, Leases: map[string]tenant.TenantLease{"a": {Day: day, Limits: spec.Quota{spec.ResourceDayTokens: 800}}}}, later, later)
	if _, _, ok := again.AdmitRequest("a", terms, costOf(740), later); !ok {
		t.Error("the leader's next list does not end the hold")
	}
}

// TestReportedUsesAreBounded: a summary lists the most relevant tenants, and the others in one entry.
func TestReportedUsesAreBounded(t *testing.T) {
	who := spec.Tenant{Limits: spec.TenantLimits{RequestsPerMinute: 1000}}
	terms := tenant.Terms{Whole: who.TotalQuota(), Static: who.TotalQuota(), Shared: true, Budget: &who.Budget}
	leases := tenant.NewLeases(false, startTime())
	leases.ApplyGrant(tenant.LeaseGrant{Term: 1, Number: 2, Leases: map[string]tenant.TenantLease{"t0000": {}}}, startTime(), startTime())
	l := tenant.NewLimiter(leases)
	for n := range 2 * capacity.MaxTenantUsages {
		for range 1 + n%3 {
			lease, _, _ := l.AdmitRequest(fmt.Sprintf("t%04d", n), terms, costOf(100*n), startTime())
			l.SettleRequest(lease, costOf(1), startTime())
		}
	}
	uses := l.ListUses(startTime())
	if len(uses) != capacity.MaxTenantUsages || uses[0].Tenant != "" || uses[0].RequestsMilli == 0 || uses[1].Tenant != "t0000" || uses[len(uses)-1].Tenant != "t0511" {
		t.Errorf("%d uses, %+v, %+v, %+v", len(uses), uses[0], uses[1], uses[len(uses)-1])
	}
	later := startTime().Add(25 * time.Hour)
	if uses = l.ListUses(later); len(uses) > capacity.MaxTenantUsages {
		t.Errorf("%d uses", len(uses))
	}
	l.ListUses(later.Add(time.Minute))
	if uses = l.ListUses(later.Add(2 * time.Minute)); len(uses) != 0 {
		t.Errorf("%d idle tenants are still told of, such as %+v", len(uses), uses[0])
	}
}

// TestSmallLeaseAdmitsFirstRequest: a minimum share below one request a minute admits one request, and then returns a
// short retry time.
func TestSmallLeaseAdmitsFirstRequest(t *testing.T) {
	who := spec.Tenant{Limits: spec.TenantLimits{RequestsPerMinute: 10}}
	terms := tenant.Terms{Whole: who.TotalQuota(), Static: spec.Quota{spec.ResourceRequests: 5000}, Shared: true, Budget: &who.Budget}
	l := tenant.NewLimiter(tenant.NewLeases(false, startTime()))
	if _, _, ok := l.AdmitRequest("a", terms, costOf(1), startTime()); !ok {
		t.Fatal("the first request waits for a lease")
	}
	if _, d, ok := l.AdmitRequest("a", terms, costOf(1), startTime()); ok || d.Retry > 6*time.Second {
		t.Errorf("the second is let in (%v), or is to wait for %v while the whole limit would do in 6s", ok, d.Retry)
	}
}

// A tenant may have two requests in flight.
func ExampleLimiter() {
	now := time.Unix(1_800_000_000, 0)
	l := tenant.NewLimiter(tenant.NewLeases(true, now))
	quota := spec.Quota{spec.ResourceConcurrency: 2}
	terms := tenant.Terms{Whole: quota, Static: quota, Budget: &spec.Budget{}}

	first, _, ok := l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("first:", ok)
	_, _, ok = l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("second:", ok)
	_, denial, ok := l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("third:", ok, denial.Code, denial.Retry)
	l.SettleRequest(first, tenant.RequestCost{Tokens: 420}, now)
	_, _, ok = l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("after the first has ended:", ok)
	// Output:
	// first: true
	// second: true
	// third: false concurrency 1s
	// after the first has ended: true
}

func TestListAllUsesIncludesTenantsWithoutLimits(t *testing.T) {
	l, now := newLimiter(), startTime()
	l.AdmitRequest("b", termsOf(spec.TenantLimits{}), costOf(100), now)
	l.AdmitRequest("b", termsOf(spec.TenantLimits{}), costOf(50), now)
	l.AdmitRequest("a", termsOf(spec.TenantLimits{Concurrency: 1}), costOf(7), now)
	if shared := l.ListUses(now); len(shared) != 0 {
		t.Fatalf("the summary has the use of limits that are not shared: %+v", shared)
	}
	for range 2 { // listing changes nothing
		got := l.ListAllUses(now)
		if len(got) != 2 || got[0].Tenant != "a" || got[1].Tenant != "b" {
			t.Fatalf("the tenants are %+v, want a and b", got)
		}
		if got[0].Running != 1 || got[1].Running != 2 || got[1].TokensMilli <= got[0].TokensMilli || got[1].RequestsMilli != 2*got[0].RequestsMilli {
			t.Errorf("the use is %+v", got)
		}
	}
	later := now.Add(10 * time.Minute)
	if got := l.ListAllUses(later); got[1].RequestsMilli >= 1000 {
		t.Errorf("after ten minutes the use is %+v", got)
	}
	if got := l.ListAllUses(now); got[1].RequestsMilli == 0 {
		t.Error("listing at a later time decayed the demand itself")
	}
}
