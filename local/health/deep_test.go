package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Who is silent is asked about once in each interval, and who speaks is left alone.
func TestDeepAsksTheSilentOnceInEachInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(int(time.Second), int(time.Hour)).Draw(t, "every"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var d Deep
		now, last := t0, t0
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(every)/4).Draw(t, "step")))
			if rapid.IntRange(0, 9).Draw(t, "speaks") == 0 {
				d.Heard(now)
				last = now
				continue
			}
			silent, due := now.Sub(last), d.Due(every, now, rng)
			if due && silent < every/10 || !due && silent > every*11/10 {
				t.Fatalf("after %v of silence, asked every %v: %v", silent, every, due)
			}
			if due {
				last = now
			}
		}
		if d.Due(0, now.Add(100*every), rng) {
			t.Fatal("asked although it is off")
		}
	})
}

func TestAFailedDeepProbeOpensAndOwesATrial(t *testing.T) {
	b := wellBreaker(t)
	b.Fail(DeepProbe, t0)
	if b.State() != Open || b.Reason() != DeepProbe || b.Reason().String() != "deep_probe" {
		t.Fatalf("it is %s because of %s", b.State(), b.Reason())
	}
	if !b.Relents() {
		t.Fatal("it would not be used in a panic")
	}
	b.ProbeOK(b.Until())
	if b.State() != HalfOpen {
		t.Fatalf("a health page alone brought it back as %s", b.State())
	}
}
