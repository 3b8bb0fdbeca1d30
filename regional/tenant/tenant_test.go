package tenant_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
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
