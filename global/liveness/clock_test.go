package liveness

import (
	"math"
	"testing"
	"time"
)

// TestPeerClockOffsetIsBounded: a peer may send any number.
func TestPeerClockOffsetIsBounded(t *testing.T) {
	own := time.UnixMilli(1_800_000_000_000)
	for clock, want := range map[int64]time.Duration{
		1_800_000_000_000: 0, 1_800_000_003_000: 3 * time.Second, 1_799_999_997_000: -3 * time.Second, math.MaxInt64: MaxClockOffset, 1: -1_799_999_999_999 * time.Millisecond,
	} {
		if got, ok := computeClockOffset(clock, own); !ok || got != want {
			t.Errorf("a clock at %d is off by %s, %v; want %s", clock, got, ok, want)
		}
	}
	if got, _ := computeClockOffset(1, time.UnixMilli(math.MaxInt64)); got != -MaxClockOffset {
		t.Errorf("far behind: %s", got)
	}
	for _, clock := range []int64{0, -1, math.MinInt64} {
		if got, ok := computeClockOffset(clock, own); ok {
			t.Errorf("a clock at %d is off by %s", clock, got)
		}
	}
}
