package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// failAll records plain error answers to tenants, one a second, with a success where a name is "ok".
func failAll(b *Breaker, names ...string) (now time.Time) {
	now = testStart
	for _, n := range names {
		if n == "ok" {
			b.RecordSuccess(now)
		} else {
			b.FailAnswer(n, now)
		}
		now = now.Add(time.Second)
	}
	return now
}

// TestErrorsOfOneTenantOnlyMakeSuspected: the effect of consecutive plain error answers, by the tenants that got
// them.
func TestErrorsOfOneTenantOnlyMakeSuspected(t *testing.T) {
	many := func(n int, names ...string) (out []string) {
		for i := range n {
			out = append(out, names[i%len(names)])
		}
		return out
	}
	for _, c := range []struct {
		name      string
		got       []string
		open      bool
		suspected bool
	}{
		{"four of one tenant", many(4, "ann"), false, false},
		{"five of one tenant", many(5, "ann"), false, true},
		{"fifty of one tenant", many(50, "ann"), false, true},
		{"five of unknown tenants", many(5, ""), false, true},
		{"one tenant and unknown ones", many(50, "ann", ""), false, true},
		{"four of two tenants", many(4, "ann", "bob"), false, false},
		{"five of two tenants", many(5, "ann", "bob"), true, false},
		{"the fifth of another tenant", append(many(4, "ann"), "bob"), true, false},
		{"the sixth of another tenant", append(many(5, "ann"), "bob"), true, false},
		{"the first of another tenant", append([]string{"bob"}, many(4, "ann")...), true, false},
		{"three tenants", many(5, "ann", "bob", "eve"), true, false},
		{"a success in between", append([]string{"bob", "ok"}, many(5, "ann")...), false, true},
	} {
		b := newClosedBreaker(t)
		failAll(b, c.got...)
		if open := b.State() == Open; open != c.open || b.Suspected() != c.suspected || open && b.Reason() != SoftError {
			t.Errorf("%s: %s because of %s, suspected %v", c.name, b.State(), b.Reason(), b.Suspected())
		}
	}
	// Bob's answer no longer counts after the window of 30 s.
	for _, c := range []struct {
		after time.Duration
		want  BreakerState
	}{{tenantWindow, Open}, {tenantWindow + 1, Closed}} {
		b := newClosedBreaker(t)
		b.FailAnswer("bob", testStart)
		for range 4 {
			b.FailAnswer("ann", testStart.Add(c.after))
		}
		if b.State() != c.want {
			t.Errorf("%v after the first tenant's error it is %s, want %s", c.after, b.State(), c.want)
		}
	}
}

// TestOneErrorOnTrialIsVerified: an error answer to one tenant neither ends a trial nor closes the breaker.
func TestOneErrorOnTrialIsVerified(t *testing.T) {
	onTrial := func() (*Breaker, time.Time) {
		b := newClosedBreaker(t)
		b.RecordFailure(OutputStalled, testStart)
		now := b.OpenUntil()
		b.RecordProbeSuccess(now)
		b.FailAnswer("ann", now)
		if b.State() != HalfOpen || !b.Suspected() {
			t.Fatalf("after an error of one tenant it is %s, suspected %v", b.State(), b.Suspected())
		}
		return b, now
	}
	b, now := onTrial()
	if b.FailAnswer("bob", now); b.State() != Open {
		t.Errorf("after errors of two tenants it is %s", b.State())
	}
	b, now = onTrial()
	if _, due := b.Verify(now); !due || b.Verified(now, Passed, now) || b.State() != Closed {
		t.Errorf("due %v; after a verification that passed it is %s", due, b.State())
	}
	b, now = onTrial()
	if k, due := b.Verify(now); !due || k != SoftError || !b.Verified(now, Failed, now) {
		t.Errorf("due %v; a verification that failed ejects nothing", due)
	}
	b.RecordFailure(SoftError, now)
	now = b.OpenUntil()
	b.RecordProbeSuccess(now)
	b.FailAnswer("ann", now)
	if _, due := b.Verify(now); !due {
		t.Error("a worker that failed its verification waits for the next one on its trial")
	}
}

// TestVerificationsAreFew: one at a time, at most one in five seconds, and another after an inconclusive one.
func TestVerificationsAreFew(t *testing.T) {
	b := newClosedBreaker(t)
	if _, due := b.Verify(testStart); due {
		t.Fatal("a worker that is not suspected is verified")
	}
	now := failAll(b, "ann", "ann", "ann", "ann", "ann")
	k, due := b.Verify(now)
	if !due || k != SoftError {
		t.Fatalf("suspected, and due is %v for %s", due, k)
	}
	began := now
	if _, due := b.Verify(now.Add(time.Hour)); due {
		t.Error("a second one begins before the first has ended")
	}
	if b.Verified(began.Add(time.Second), Failed, now) {
		t.Error("the end of another verification counts")
	}
	now = now.Add(time.Second)
	if b.Verified(began, Inconclusive, now) || !b.Suspected() {
		t.Error("one that showed nothing has ended the suspicion")
	}
	if _, due := b.Verify(now.Add(verifyEvery - 1)); due {
		t.Error("it is repeated too soon")
	}
	now = now.Add(verifyEvery)
	if _, due := b.Verify(now); !due {
		t.Error("it is not repeated")
	}
	if b.Verified(now, Passed, now) || b.Suspected() || b.State() != Closed {
		t.Error("one that was passed has not ended the suspicion")
	}
	for range 4 {
		b.FailAnswer("ann", now)
	}
	if b.Suspected() {
		t.Error("the run did not begin again")
	}
	b.FailAnswer("ann", now)
	if _, due := b.Verify(now.Add(verifyEvery - 1)); due || !b.Suspected() {
		t.Error("the next verification is too soon")
	}
	if _, due := b.Verify(now.Add(verifyEvery)); !due {
		t.Error("there is no next verification")
	}
	b.RecordFailure(OutputStalled, now)
	if b.Suspected() || b.Verified(now.Add(verifyEvery), Failed, now) {
		t.Error("a worker that was ejected meanwhile is suspected still")
	}
	// A clock that is set back delays none of them.
	b = newClosedBreaker(t)
	now = failAll(b, "ann", "ann", "ann", "ann", "ann")
	b.Verify(now)
	b.Verified(now, Inconclusive, now)
	b.adjustClock(now.Add(-time.Hour))
	if _, due := b.Verify(now.Add(verifyEvery - time.Hour)); !due {
		t.Error("a clock that was set back delays the next verification")
	}
}

// TestTheErrorRateOfOneTenantIsVerified: a worker that is an outlier by the errors of one tenant is suspected, and
// does not hide a worker whose errors went to two. Refusals for load count as plain errors, lost connections do not.
func TestTheErrorRateOfOneTenantIsVerified(t *testing.T) {
	one := func(b *Breaker) {
		for range 90 {
			b.FailAnswer("ann", testStart)
			b.RecordSuccess(testStart)
		}
	}
	two := func(b *Breaker) {
		for range 20 {
			b.FailAnswer("ann", testStart)
			b.RecordSuccess(testStart)
			b.FailAnswer("bob", testStart)
			b.RecordSuccess(testStart)
		}
	}
	for _, c := range []struct {
		name      string
		w1, w3    func(*Breaker)
		at        int
		suspected bool
	}{
		{"one tenant", one, nil, -1, true},
		{"two tenants", two, nil, 1, false},
		{"a worse worker by one tenant", one, two, 3, true},
		{"refusals for load to one tenant", func(b *Breaker) {
			for range 60 {
				b.RecordOverload("ann", testStart)
			}
		}, nil, -1, true},
		{"refusals for load to two tenants", func(b *Breaker) {
			for range 30 {
				b.RecordOverload("ann", testStart)
				b.RecordOverload("bob", testStart)
			}
		}, nil, 1, false},
		{"a load error of one tenant and a plain one of another", func(b *Breaker) {
			one(b)
			b.RecordOverload("bob", testStart)
		}, nil, 1, false},
		{"refused connections", func(b *Breaker) {
			for range 60 {
				b.RecordFailure(ConnectionRefused, testStart)
				b.RecordSuccess(testStart)
			}
		}, nil, 1, false},
		{"refused connections, and some errors of one tenant", func(b *Breaker) {
			for range 60 {
				b.RecordFailure(ConnectionRefused, testStart)
				b.RecordSuccess(testStart)
			}
			b.FailAnswer("ann", testStart)
		}, nil, 1, false},
		{"errors of one tenant, and some refused connections", func(b *Breaker) {
			one(b)
			b.RecordFailure(ConnectionRefused, testStart)
			b.RecordSuccess(testStart)
		}, nil, -1, true},
	} {
		pool := newBusyPool(testStart)
		c.w1(pool.breakers[1])
		if c.w3 != nil {
			c.w3(pool.breakers[3])
		}
		at, k := pool.cfg.FindOutlier(pool.breakers, testStart)
		if at != c.at || at >= 0 && k != ErrorRateOutlier || pool.breakers[1].Suspected() != c.suspected || pool.breakers[3].Suspected() {
			t.Errorf("%s: outlier %d by %s, suspected %v %v", c.name, at, k, pool.breakers[1].Suspected(), pool.breakers[3].Suspected())
		}
	}
	// A passed verification clears the errors of one tenant, and not those of two.
	for name, play := range map[string]func(*Breaker){"ann": one, "two": func(b *Breaker) { one(b); b.RecordOverload("bob", testStart) }} {
		pool := newBusyPool(testStart)
		b := pool.breakers[1]
		one(b)
		pool.cfg.FindOutlier(pool.breakers, testStart)
		k, due := b.Verify(testStart)
		if !due || k != ErrorRateOutlier {
			t.Fatalf("due %v for %s", due, k)
		}
		if name == "two" {
			play(b)
		}
		b.Verified(testStart, Passed, testStart)
		at, _ := pool.cfg.FindOutlier(pool.breakers, testStart)
		if b.Suspected() || (at == 1) != (name == "two") {
			t.Errorf("%s: after it passed, outlier %d, suspected %v", name, at, b.Suspected())
		}
	}
}

// TestOneTenantEjectsNoWorkerThatPasses applies plain errors and refusals to one tenant, successes and passed
// verifications to a pool: every worker stays, and each is verified at most once in five seconds.
func TestOneTenantEjectsNoWorkerThatPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestPool(rapid.IntRange(1, 6).Draw(t, "workers"), Config{Samples: 3, Failures: rapid.IntRange(1, 6).Draw(t, "failures")})
		now := testStart
		for _, b := range c.breakers {
			b.RecordProbeSuccess(now)
		}
		verified := map[int][]time.Time{}
		began := make([]time.Time, len(c.breakers))
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			i := rapid.IntRange(0, len(c.breakers)-1).Draw(t, "worker")
			b := c.breakers[i]
			switch rapid.IntRange(0, 6).Draw(t, "op") {
			case 0, 1:
				b.FailAnswer("ann", now)
			case 2:
				b.RecordOverload("ann", now)
			case 3:
				b.RecordSuccess(now)
			case 4:
				if at, k := c.cfg.FindOutlier(c.breakers, now); at >= 0 {
					c.ejectIfAllowed(c.breakers[at], k, now)
				}
			case 5:
				if !began[i].IsZero() {
					b.Verified(began[i], rapid.SampledFrom([]Verification{Passed, Inconclusive}).Draw(t, "verification"), now)
					began[i] = time.Time{}
				}
			case 6:
				if _, due := b.Verify(now); due {
					began[i] = now
					verified[i] = append(verified[i], now)
				}
			}
			if out := len(c.breakers) - c.countAccepting(); out > 0 {
				t.Fatalf("one tenant has ejected %d of %d", out, len(c.breakers))
			}
		}
		for i, times := range verified {
			for j := range times[1:] {
				if d := times[j+1].Sub(times[j]); d < verifyEvery {
					t.Fatalf("worker %d is verified after %v", i, d)
				}
			}
		}
	})
}

// TestABrokenWorkerIsEjected simulates a worker that fails every request, generated ones included, for any number of
// tenants: it is out after its first Failures errors and one verification.
func TestABrokenWorkerIsEjected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{}, rand.New(rand.NewPCG(1, 2)))
		b.RecordProbeSuccess(testStart)
		names := []string{"", "ann", "bob", "eve"}[:rapid.IntRange(1, 4).Draw(t, "tenants")]
		now := testStart
		for range 5 {
			b.FailAnswer(rapid.SampledFrom(names).Draw(t, "tenant"), now)
			now = now.Add(time.Second)
		}
		if k, due := b.Verify(now); due && b.Verified(now, Failed, now) {
			b.RecordFailure(k, now)
		}
		if b.State() != Open || b.Reason() != SoftError {
			t.Fatalf("it is %s because of %s", b.State(), b.Reason())
		}
	})
}

// TestTwoStoredTenantsSuffice compares two stored names with a set of all answers.
func TestTwoStoredTenantsSuffice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s tenants
		last := map[string]time.Time{}
		now := testStart
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms")) * time.Millisecond)
			name := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "tenant"))
			s.addTenant(name, now)
			last[name] = now
			at := now.Add(time.Duration(rapid.IntRange(0, 20000).Draw(t, "later")) * time.Millisecond)
			var others []time.Time
			for n, when := range last {
				if n != name {
					others = append(others, when)
				}
			}
			want := len(others) > 0 && at.Sub(slices.MaxFunc(others, time.Time.Compare)) <= tenantWindow
			if s.hasSeveral(at) != want {
				t.Fatalf("several is %v, want %v", !want, want)
			}
		}
	})
}
