package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
