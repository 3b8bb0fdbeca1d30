package dns

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCoarseClockMatchesTimeNow checks that coarseClock never differs from time.Now and keeps its monotonic part.
func TestCoarseClockMatchesTimeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarseClock
		for _, step := range []time.Duration{0, time.Millisecond, clockReadInterval - time.Nanosecond, clockReadInterval, time.Nanosecond, time.Hour, 1} {
			time.Sleep(step)
			if got, want := c.currentTime(), time.Now(); !got.Equal(want) || got.Round(0) != want.Round(0) || time.Since(got) != 0 {
				t.Fatalf("after %s the clock returns %s, want %s", step, got, want)
			}
		}
	})
}

func BenchmarkCoarseClock(b *testing.B) {
	var c coarseClock
	for b.Loop() {
		c.currentTime()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}
