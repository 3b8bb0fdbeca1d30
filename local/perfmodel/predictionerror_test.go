package perfmodel

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The quantile is that of a sorted list, to within a quarter of an octave.
func TestPredictionErrorQuantileIsAccurate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratios := rapid.SliceOfN(rapid.Float64Range(0.07, 200), 32, 1000).Draw(t, "ratios")
		share := rapid.Float64Range(0.5, 0.999).Draw(t, "share")
		var s PredictionError
		for _, r := range ratios {
			s.ObserveTTFT(r*0.3, 0.3)
		}
		slices.Sort(ratios)
		want := ratios[int(math.Ceil(share*float64(len(ratios))))-1]
		got := s.Quantile(share)
		if got < want*0.999 || got > want*math.Exp2(0.25)*1.001 {
			t.Fatalf("the %v quantile of %d ratios is %v, want %v and a quarter of an octave above it at most", share, len(ratios), got, want)
		}
	})
}

// For any observations, the hedge delay is finite, at least the floor, and longer for a longer prediction.
func TestHedgeDelayStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		any64 := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1}))
		var s PredictionError
		for range rapid.IntRange(0, 3000).Draw(t, "answers") % 300 {
			s.ObserveTTFT(any64.Draw(t, "took"), any64.Draw(t, "predicted"))
		}
		floor := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "floor"))
		share := rapid.Float64Range(0.5, 0.999).Draw(t, "share")
		p := any64.Draw(t, "prediction")
		d := HedgeDelay(p, &s, share, floor)
		if d < floor || d > max(floor, 10*time.Minute) {
			t.Fatalf("delay %v with a floor of %v", d, floor)
		}
		if longer := HedgeDelay(2*p, &s, share, floor); p > 0 && longer < d {
			t.Fatalf("%v for a prediction of %v, %v for twice that", d, p, longer)
		}
	})
}

func TestPredictionErrorForgets(t *testing.T) {
	var s PredictionError
	for range 5000 {
		s.ObserveTTFT(8, 1)
	}
	for range 20000 {
		s.ObserveTTFT(1, 1)
	}
	if got := s.Quantile(0.99); got > 1.2 {
		t.Errorf("after 20,000 true predictions the quantile is still %v", got)
	}
}
