package tenant_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

func start() time.Time { return time.Unix(1_000_000, 0) }

// terms are those of limits that one gateway has for itself.
func terms(lim spec.Limits) tenant.Terms {
	t := spec.Tenant{Limits: lim}
	return tenant.Terms{Whole: t.Allowance(), Static: t.Allowance(), Budget: &t.Budget}
}

func newLimiter() *tenant.Limiter { return tenant.NewLimiter(tenant.NewLeases(true, start())) }

func ask(tokens int) tenant.Ask { return tenant.Ask{Tokens: tokens} }

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lim   spec.Limits
		costs []int
		code  string // of the denial of the last
		retry time.Duration
	}{
		{"unlimited", spec.Limits{}, []int{1 << 30, 1 << 30, 1 << 30}, "", 0},
		{"requests", spec.Limits{RequestsPerMinute: 2}, []int{1, 1, 1}, openai.CodeRequests, 30 * time.Second},
		{"tokens", spec.Limits{TokensPerMinute: 100}, []int{60, 60}, openai.CodeTokens, 12 * time.Second},
		{"longer than a minute's tokens waits for a full bucket", spec.Limits{TokensPerMinute: 100}, []int{500}, "", 0},
		{"concurrency", spec.Limits{Concurrency: 2}, []int{1, 1, 1}, openai.CodeConcurrency, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimiter()
			for i, c := range tc.costs {
				_, d, ok := l.Admit("a", terms(tc.lim), ask(c), start())
				last := i == len(tc.costs)-1
				if ok != (!last || tc.code == "") {
					t.Fatalf("request %d admitted: %v (%+v)", i, ok, d)
				}
				if !ok && (d.Code != tc.code || d.Retry != tc.retry) {
					t.Fatalf("denial is %+v, want %s in %v", d, tc.code, tc.retry)
				}
			}
			if _, _, ok := l.Admit("other", terms(tc.lim), ask(1), start()); !ok {
				t.Fatal("one tenant's use denied another")
			}
		})
	}
}

func TestSettleReturnsWhatWasNotUsed(t *testing.T) {
	l, lim := newLimiter(), spec.Limits{TokensPerMinute: 100, RequestsPerMinute: 10, Concurrency: 1}
	lease, _, _ := l.Admit("a", terms(lim), ask(90), start())
	l.Settle(lease, ask(30), start())
	if left := l.Left("a", terms(lim), start()); left.Tokens != 70 || left.Requests != 9 || left.ResetTokens != 18*time.Second || left.ResetRequests != 6*time.Second {
		t.Fatalf("left is %+v", left)
	}
	lease, _, ok := l.Admit("a", terms(lim), ask(10), start())
	if !ok {
		t.Fatal("a settled request still counts as running")
	}
	l.Settle(lease, ask(200), start()) // far more than was reserved: owed
	if _, d, ok := l.Admit("a", terms(lim), ask(1), start()); ok || d.Code != openai.CodeTokens {
		t.Fatalf("an overdrawn tenant was admitted (%+v)", d)
	}
	if _, _, ok := l.Admit("a", terms(lim), ask(1), start().Add(3*time.Minute)); !ok {
		t.Fatal("a debt outlives the minutes that pay it")
	}
}

// TestNoMinuteExceedsTwoMinutesWorth holds the bucket's bound: in any minute at most the bucket and its refill.
func TestNoMinuteExceedsTwoMinutesWorth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := spec.Limits{RequestsPerMinute: rapid.IntRange(1, 50).Draw(t, "rpm"), TokensPerMinute: rapid.IntRange(1, 5000).Draw(t, "tpm")}
		l, now := newLimiter(), start()
		requests, tokens := 0, 0
		for now.Sub(start()) < time.Minute {
			cost := rapid.IntRange(1, 1000).Draw(t, "cost")
			if lease, _, ok := l.Admit("a", terms(lim), ask(cost), now); ok {
				requests++
				tokens += min(cost, lim.TokensPerMinute)
				l.Settle(lease, ask(min(cost, lim.TokensPerMinute)), now)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "gap")) * time.Millisecond)
		}
		if requests > 2*lim.RequestsPerMinute || tokens > 2*lim.TokensPerMinute {
			t.Fatalf("%d requests and %d tokens in a minute, limits %+v", requests, tokens, lim)
		}
	})
}

func TestRetainForgetsOnlyTheIdle(t *testing.T) {
	l, lim := newLimiter(), spec.Limits{RequestsPerMinute: 1}
	lease, _, _ := l.Admit("busy", terms(lim), ask(1), start())
	idle, _, _ := l.Admit("idle", terms(lim), ask(1), start())
	l.Settle(idle, ask(1), start())
	l.Retain(func(string) bool { return false })
	if _, _, ok := l.Admit("idle", terms(lim), ask(1), start()); !ok {
		t.Error("the idle tenant was kept")
	}
	if _, _, ok := l.Admit("busy", terms(lim), ask(1), start()); ok {
		t.Error("the busy tenant was forgotten")
	}
	l.Settle(lease, ask(1), start())
}

func TestBudgetIsAShareWithAFloor(t *testing.T) {
	var b tenant.Budget
	now, taken := start(), 0
	for range 1000 {
		if b.Take(now) {
			taken++
		}
	}
	if taken != 100 {
		t.Fatalf("a full budget gave %d, want 100", taken)
	}
	for range 40 {
		b.Request(0.125)
	}
	for taken = 0; b.Take(now); taken++ {
	}
	if taken != 5 {
		t.Fatalf("40 requests earned %d, want 5", taken)
	}
	for taken = 0; b.Take(now.Add(time.Second)); taken++ {
	}
	if taken != 10 {
		t.Fatalf("a quiet second earned %d, want 10", taken)
	}
}
