package steer

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestQuantiseGivesEveryEqualRegionAShare covers the counts at which an even part is below 1/256 after rounding.
func TestQuantiseGivesEveryEqualRegionAShare(t *testing.T) {
	for _, n := range []int{1, 2, 100, 128, 129, 200, 201, 230, 255, MaxRegions} {
		for _, weight := range []float64{0.1, 1, 1.0 / 3, 1e12} {
			parts := make([]float64, n)
			for r := range parts {
				parts[r] = weight
			}
			shares := quantiseShares(parts)
			checkWeightSum(t, shares)
			if len(shares) != n {
				t.Errorf("%d regions of weight %g: %d get a share", n, weight, len(shares))
			}
			for _, s := range shares {
				if most := uint16(math.Ceil(WeightSum / float64(n))); s.Weight > most {
					t.Errorf("%d regions of weight %g: region %d gets %d of %d, want at most %d", n, weight, s.Region, s.Weight, WeightSum, most)
				}
			}
		}
	}
}

// TestQuantiseDropsSmallParts: with few regions, a part below half a percent gets no share.
func TestQuantiseDropsSmallParts(t *testing.T) {
	for _, c := range []struct {
		small float64
		want  int
	}{{0.0049, 1}, {0.0045, 1}, {0.0051, 2}, {0.01, 2}} {
		shares := quantiseShares([]float64{1 - c.small, c.small})
		checkWeightSum(t, shares)
		if len(shares) != c.want {
			t.Errorf("a part of %g: %v, want %d shares", c.small, shares, c.want)
		}
	}
}

// TestQuantiseAlwaysAddsUp draws any valid parts, including zeros and equal ones.
func TestQuantiseAlwaysAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Just(0.1), rapid.Float64()), 0, MaxRegions).Draw(t, "parts")
		some := false
		for _, f := range parts {
			some = some || clampAmount(f) > 0
		}
		shares := quantiseShares(parts)
		if !some {
			if shares != nil {
				t.Fatalf("no part, and %v", shares)
			}
			return
		}
		checkWeightSum(t, shares)
	})
}

// TestCompileSpecOf256Regions: a spec with equal weights compiles with any number of regions.
func TestCompileSpecOf256Regions(t *testing.T) {
	s := &spec.Spec{Services: []spec.Service{{Name: "api.", Mode: "weighted", Weights: map[string]float64{}}}}
	for r := range MaxRegions {
		name := string(rune('a'+r/26)) + string(rune('a'+r%26))
		s.Regions = append(s.Regions, spec.Region{Name: name})
		s.Services[0].Weights[name] = 0.1
		table := CompileTable(s, NewGeography(r+1, nil, nil), nil)
		if n := len(table.services[0].spread); n != r+1 {
			t.Fatalf("%d regions: %d get a share", r+1, n)
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func checkWeightSum(t fataler, shares []RegionShare) {
	t.Helper()
	sum := 0
	for _, s := range shares {
		if s.Weight == 0 {
			t.Fatalf("region %d gets a share of 0", s.Region)
		}
		sum += int(s.Weight)
	}
	if sum != WeightSum {
		t.Fatalf("shares add up to %d, want %d", sum, WeightSum)
	}
}
