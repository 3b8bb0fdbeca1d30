package spec_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestDrainShare: the share falls linearly from 1 to 0.
func TestDrainShare(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		over := time.Duration(rapid.Int64Range(1, int64(366*24*time.Hour)).Draw(t, "over"))
		a := time.Duration(rapid.Int64Range(-int64(over), 2*int64(over)).Draw(t, "a"))
		b := a + time.Duration(rapid.Int64Range(0, int64(over)).Draw(t, "b"))
		share := func(after time.Duration) float64 { return spec.DrainShare(start, over, start.Add(after)) }
		x, y := share(a), share(b)
		switch {
		case x < 0 || x > 1 || y > x:
			t.Fatalf("the share goes from %v to %v", x, y)
		case a <= 0 && x != 1:
			t.Fatalf("%v stays before the start", x)
		case b >= over && y != 0:
			t.Fatalf("%v stays after the end", y)
		case a >= 0 && b <= over && math.Abs((x-y)-float64(b-a)/float64(over)) > 1e-9:
			t.Fatalf("in %s of %s %v leaves", b-a, over, x-y)
		}
	})
	for name, share := range map[string]float64{
		"over 0":         spec.DrainShare(start, 0, start),
		"unknown start":  spec.DrainShare(time.Time{}, time.Hour, start),
		"a negative one": spec.DrainShare(start, -time.Hour, start),
	} {
		if share != 0 {
			t.Errorf("%s leaves %v", name, share)
		}
	}
}
