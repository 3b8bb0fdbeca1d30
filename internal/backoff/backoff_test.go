package backoff

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelayDoublesUpToTheLongest(t *testing.T) {
	b := Doubling{First: time.Second, Longest: 5 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.NextDelay(); got != want*time.Second {
			t.Errorf("delay %d is %v, want %v", i, got, want*time.Second)
		}
	}
	b.Reset()
	if got := b.NextDelay(); got != time.Second {
		t.Errorf("the first delay after a success is %v", got)
	}
}

func TestDelayStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		longest := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "longest"))
		first := time.Duration(rapid.Int64Range(1, int64(longest)).Draw(t, "first"))
		failures := rapid.IntRange(1, 200).Draw(t, "failures")
		got, next := DelayAfter(first, longest, failures), DelayAfter(first, longest, failures+1)
		if got < first || got > longest || next < got {
			t.Fatalf("%v, then %v", got, next)
		}
	})
}

func TestSpreadIsSymmetric(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 90, 0.5: 100, 1: 110} {
		if got := SpreadAround(100*time.Second, 0.1, random); (got - want*time.Second).Abs() > time.Microsecond {
			t.Errorf("at %v: %v, want %v", random, got, want*time.Second)
		}
	}
}

func TestDecorrelatedDelayIsAtMostThreeTimesTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		b := Decorrelated{First: 50 * time.Millisecond, Longest: 5 * time.Second}
		last := time.Duration(0)
		for range 30 {
			d := b.NextDelay(rng)
			if d < b.First || d > b.Longest || d > max(3*last, 2*b.First) || !b.Failing() {
				t.Fatalf("%v after %v", d, last)
			}
			last = d
		}
		b.Reset()
		if b.Failing() {
			t.Fatal("failing after a success")
		}
		if d := b.NextDelay(rng); d > 2*b.First {
			t.Fatalf("%v after a success", d)
		}
	})
}
