package dns

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClockTellsTheTime holds that the cheap clock never differs from the machine's, nor loses its monotonic part.
func TestClockTellsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		for _, step := range []time.Duration{0, time.Millisecond, clockHolds - time.Nanosecond, clockHolds, time.Nanosecond, time.Hour, 1} {
			time.Sleep(step)
			if got, want := c.now(), time.Now(); !got.Equal(want) || got.Round(0) != want.Round(0) || time.Since(got) != 0 {
				t.Fatalf("after %s it tells %s, and it is %s", step, got, want)
			}
		}
	})
}

func BenchmarkClock(b *testing.B) {
	var c clock
	for b.Loop() {
		c.now()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}
