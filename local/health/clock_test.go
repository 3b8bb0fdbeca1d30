package health

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestClockSetBackDelaysNothing: after the clock is set back an hour, an open worker still returns after its backoff,
// a ramp still ends after SlowStart, and a silent worker is still stalled after Stall.
func TestClockSetBackDelaysNothing(t *testing.T) {
	start := time.Unix(1e6, 0)
	fresh := func() *Breaker { return New(Config{}, rand.New(rand.NewPCG(1, 1))) }

	out := fresh()
	out.RecordProbeSuccess(start)
	out.RecordFailure(OutputStalled, start)
	back := start.Add(-time.Hour)
	out.RecordProbeSuccess(back)
	if out.State() != Open {
		t.Fatalf("the step back itself let it in: %v", out.State())
	}
	out.RecordProbeSuccess(back.Add(2 * time.Second))
	if out.State() != HalfOpen {
		t.Errorf("2 s after the clock went back it is %v, want half-open: its backoff was 1 s", out.State())
	}

	slow := fresh()
	slow.RecordProbeSuccess(start)
	if s := slow.Share(back); s > 0.11 {
		t.Errorf("share %v at the step back", s)
	}
	if s := slow.Share(back.Add(11 * time.Second)); s != 1 {
		t.Errorf("share %v after 11 s, want 1", s)
	}

	silent := fresh()
	silent.RecordProbeSuccess(start)
	silent.BeginRequest(start)
	if silent.IsStalled(0, back) || silent.Silence(back) != 0 {
		t.Error("the step back is taken for silence")
	}
	if !silent.IsStalled(0, back.Add(11*time.Second)) {
		t.Error("11 s of silence after the clock went back are not seen")
	}
}

// TestInvalidInputIsHarmless passes invalid numbers and a clock that jumps an hour in both directions to a pool.
// Nothing panics, shares and silences stay in range, and once the clock is steady every worker recovers.
func TestInvalidInputIsHarmless(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1, math.MaxFloat64}
	rapid.Check(t, func(t *rapid.T) {
		any := func(name string) float64 { return rapid.SampledFrom(odd).Draw(t, name) }
		c := Config{
			Failures: rapid.IntRange(-2, 5).Draw(t, "failures"), MaxEjected: any("ejected"), Panic: any("panic"), ErrorRate: any("rate"),
			SlowFactor: any("factor"), Samples: any("samples"), Backoff: time.Duration(rapid.Int64Range(-1, int64(time.Minute)).Draw(t, "backoff")),
			WarmUp: rapid.Bool().Draw(t, "warm"),
		}
		rng := rand.New(rand.NewPCG(1, 1))
		pool := make([]*Breaker, 4)
		for i := range pool {
			pool[i] = New(c, rng)
		}
		now := time.Unix(1e6, 0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, 0, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "dt"))
			b := pool[rapid.IntRange(0, len(pool)-1).Draw(t, "who")]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.RecordFailure(FailureKind(rapid.IntRange(0, int(numFailureKinds)).Draw(t, "kind")), now)
			case 1:
				b.RecordSuccess(now)
			case 2, 3:
				b.RecordProbeSuccess(now)
			case 4:
				b.RecordWarmUp(now)
			case 5:
				b.RecordSlowness(any("slowness"), now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ago"))))
			case 6:
				b.BeginRequest(now)
			case 7:
				b.RecordOutput(now)
				b.EndRequest()
			case 8:
				b.RecordGPUHealth([]GPUHealth{{XID: rapid.Int64().Draw(t, "xid"), Used: rapid.Int64().Draw(t, "used"), Free: rapid.Int64().Draw(t, "free")}}, now)
			case 9:
				if at, _ := c.FindOutlier(pool, now); at < -1 || at >= len(pool) {
					t.Fatalf("outlier %d", at)
				}
			}
			for i, b := range pool {
				if s := b.Share(now); !(s > 0 && s <= 1) {
					t.Fatalf("worker %d has a share of %v", i, s)
				}
				if d := b.Silence(now); d < 0 {
					t.Fatalf("worker %d is silent for %v", i, d)
				}
				if r, ok := b.errorRate(now); ok && !(r >= 0 && r <= 1) {
					t.Fatalf("worker %d has an error rate of %v", i, r)
				}
			}
		}
		for _, b := range pool {
			for range 400 {
				now = now.Add(time.Second)
				b.RecordProbeSuccess(now)
				b.RecordWarmUp(now)
				b.RecordSuccess(now)
			}
			b.RecordGPUHealth(nil, now)
			if s := b.Share(now); b.State() != Closed || s != 1 {
				t.Fatalf("after 400 good seconds it is %v with a share of %v", b.State(), s)
			}
		}
	})
}
