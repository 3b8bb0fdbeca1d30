package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAbsenceInBetweenPaysNoTrial: who was ejected and then failed its warm-up, its probes or its trial by being away owes
// the trial still.
func TestAbsenceInBetweenPaysNoTrial(t *testing.T) {
	back := func(b *Breaker) {
		now := b.Until()
		b.ProbeOK(now)
		b.Warmed(now)
	}
	for _, c := range []struct {
		name    string
		warmUp  bool
		between func(b *Breaker)
	}{
		{"a failed warm-up", true, func(b *Breaker) {
			b.ProbeOK(b.Until())
			b.Fail(WarmUp, b.Until())
		}},
		{"two failed warm-ups", true, func(b *Breaker) {
			for range 2 {
				b.ProbeOK(b.Until())
				b.Fail(WarmUp, b.Until())
			}
		}},
		{"a failed probe on trial", false, func(b *Breaker) {
			back(b)
			b.Fail(Probe, b.Until())
		}},
		{"a refused connection on trial", true, func(b *Breaker) {
			back(b)
			b.Fail(Refused, b.Until())
		}},
	} {
		for _, why := range []Kind{OOM, Stalled, Erring, Slow, Soft, DeepProbe} {
			b := New(Config{WarmUp: c.warmUp, Failures: 1}, rand.New(rand.NewPCG(1, 2)))
			back(b)
			b.Fail(why, t0)
			c.between(b)
			if b.State() != Open || !b.Reason().absence() {
				t.Fatalf("%s after %s: it is %s because of %s, the case is about an absence", c.name, why, b.State(), b.Reason())
			}
			back(b)
			if b.State() != HalfOpen {
				t.Errorf("%s after %s: it came back %s, it owes a trial", c.name, why, b.State())
				continue
			}
			b.OK(b.Until())
			if b.State() != Closed {
				t.Errorf("%s after %s: it is %s after its trial", c.name, why, b.State())
			}
			b.Fail(Refused, b.Until())
			b.Fail(Refused, b.Until())
			back(b)
			if b.State() != Closed {
				t.Errorf("%s after %s: paid, and %s after an absence", c.name, why, b.State())
			}
		}
	}
}

// TestATrialIsOwedUntilItIsPassed: from whatever news, a worker that more than its absence spoke against is never closed
// again without a success on trial.
func TestATrialIsOwedUntilItIsPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{WarmUp: rapid.Bool().Draw(t, "warm")}, rand.New(rand.NewPCG(1, 2)))
		now, accused := t0, false
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			before, op := b.State(), anyNews(t, b, now)
			accused = accused || b.State() == Open && !b.Reason().absence()
			if b.State() != Closed {
				continue
			}
			if accused && (before != HalfOpen || op != -2) {
				t.Fatalf("operation %d closed it out of %s: it owed a trial", op, before)
			}
			accused = false
		}
	})
}
