package lab

import (
	"cmp"
	"math"
	"slices"
)

// Spread is one figure over the seeds.
type Spread struct {
	// Median of the seeds, and the least and the greatest of them.
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Missing says why there is no figure. The others are then 0 and mean nothing.
	Missing string `json:"missing,omitempty"`
	// Endless says that what is missing is longer than any time: too many requests were not answered.
	Endless bool `json:"endless,omitempty"`
	// Beyond says that the search ended at its bound: the true figure is this or better.
	Beyond bool `json:"beyond,omitempty"`
	// Below is set where the search's first value was too much already: the true figure is less than this.
	Below float64 `json:"below,omitempty"`
}

// sample is one seed's figure.
type sample struct {
	v      float64
	why    string // there is none
	beyond bool
	below  float64 // there is none, and it would be less than this
}

// spread sums up seeds. A seed without a figure is worse than any with one, so where half of them have none, so has the
// whole.
func spread(samples []sample, less bool) Spread {
	var have []sample
	why, endless, below := "", false, 0.0
	for _, s := range samples {
		if s.why == "" {
			have = append(have, s)
			continue
		}
		why = cmp.Or(why, s.why)
		below = max(below, s.below)
		endless = endless || math.IsInf(s.v, 1)
	}
	lacking := len(samples) - len(have)
	if len(have) == 0 || 2*lacking >= len(samples) {
		return Spread{Missing: cmp.Or(why, "nothing was run"), Endless: endless, Below: below}
	}
	slices.SortFunc(have, func(a, b sample) int { return cmp.Compare(a.v, b.v) })
	s := Spread{Min: have[0].v, Max: have[len(have)-1].v}
	// The median of all: those that lack stand at the worse end.
	at := len(samples) / 2
	if !less {
		at -= lacking
	}
	at = min(max(at, 0), len(have)-1)
	s.Median, s.Beyond = have[at].v, have[at].beyond
	if below := at - 1; len(samples)%2 == 0 && below >= 0 {
		s.Median = (have[at].v + have[below].v) / 2
		s.Beyond = have[at].beyond || have[below].beyond
	}
	return s
}
