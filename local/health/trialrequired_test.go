package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAbsenceDoesNotClearRequiredTrial: a worker that was ejected and then also failed its warm-up, probes or trial
// by being absent still needs the trial.
func TestAbsenceDoesNotClearRequiredTrial(t *testing.T) {
	back := func(b *Breaker) {
		now := b.OpenUntil()
		b.RecordProbeSuccess(now)
		b.RecordWarmUp(now)
	}
	for _, c := range []struct {
		name    string
		warmUp  bool
		between func(b *Breaker)
	}{
		{"a failed warm-up", true, func(b *Breaker) {
			b.RecordProbeSuccess(b.OpenUntil())
			b.RecordFailure(WarmUpFailed, b.OpenUntil())
		}},
		{"two failed warm-ups", true, func(b *Breaker) {
			for range 2 {
				b.RecordProbeSuccess(b.OpenUntil())
				b.RecordFailure(WarmUpFailed, b.OpenUntil())
			}
		}},
		{"a failed probe on trial", false, func(b *Breaker) {
			back(b)
			b.RecordFailure(ProbeFailed, b.OpenUntil())
		}},
		{"a refused connection on trial", true, func(b *Breaker) {
			back(b)
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
		}},
	} {
		for _, why := range []FailureKind{OutOfMemory, OutputStalled, ErrorRateOutlier, LatencyOutlier, SoftError, DeepProbeFailed} {
			b := New(Config{WarmUp: c.warmUp, Failures: 1}, rand.New(rand.NewPCG(1, 2)))
			back(b)
			b.RecordFailure(why, testStart)
			c.between(b)
			if b.State() != Open || !b.Reason().isAbsence() {
				t.Fatalf("%s after %s: it is %s because of %s, the case is about an absence", c.name, why, b.State(), b.Reason())
			}
			back(b)
			if b.State() != HalfOpen {
				t.Errorf("%s after %s: it came back %s, it needs a trial", c.name, why, b.State())
				continue
			}
			b.RecordSuccess(b.OpenUntil())
			if b.State() != Closed {
				t.Errorf("%s after %s: it is %s after its trial", c.name, why, b.State())
			}
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
			back(b)
			if b.State() != Closed {
				t.Errorf("%s after %s: paid, and %s after an absence", c.name, why, b.State())
			}
		}
	}
}

// TestTrialIsRequiredUntilPassed: after any events, a worker that was out for more than absence is never closed again
// without a success on trial.
func TestTrialIsRequiredUntilPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{WarmUp: rapid.Bool().Draw(t, "warm")}, rand.New(rand.NewPCG(1, 2)))
		now, accused := testStart, false
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			before, op := b.State(), applyRandomEvent(t, b, now)
			accused = accused || b.State() == Open && !b.Reason().isAbsence()
			if b.State() != Closed {
				continue
			}
			if accused && (before != HalfOpen || op != -2 && op != -5) {
				t.Fatalf("operation %d closed it out of %s: it needed a trial", op, before)
			}
			accused = false
		}
	})
}

// TestDeepProbeIsDueOncePerSilentInterval: a silent worker is probed once per interval, one that emits tokens is not.
func TestDeepProbeIsDueOncePerSilentInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(int(time.Second), int(time.Hour)).Draw(t, "every"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var d DeepProbeTimer
		now, last := testStart, testStart
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(every)/4).Draw(t, "step")))
			if rapid.IntRange(0, 9).Draw(t, "speaks") == 0 {
				d.RecordToken(now)
				last = now
				continue
			}
			silent, due := now.Sub(last), d.TakeDueProbe(every, now, rng)
			if due && silent < every/10 || !due && silent > every*11/10 {
				t.Fatalf("after %v of silence, asked every %v: %v", silent, every, due)
			}
			if due {
				last = now
			}
		}
		if d.TakeDueProbe(0, now.Add(100*every), rng) {
			t.Fatal("asked although it is off")
		}
	})
}

func TestFailedDeepProbeOpensAndRequiresTrial(t *testing.T) {
	b := newClosedBreaker(t)
	b.RecordFailure(DeepProbeFailed, testStart)
	if b.State() != Open || b.Reason() != DeepProbeFailed || b.Reason().String() != "deep_probe" {
		t.Fatalf("it is %s because of %s", b.State(), b.Reason())
	}
	if !b.UsableInPanic() {
		t.Fatal("it would not be used in a panic")
	}
	b.RecordProbeSuccess(b.OpenUntil())
	if b.State() != HalfOpen {
		t.Fatalf("a health page alone brought it back as %s", b.State())
	}
}
