package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// SeedSpread is one figure over the seeds.
type SeedSpread struct {
	// Median of the seeds, and their minimum and maximum.
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Missing is the reason why there is no figure. The others are then 0 and have no meaning.
	Missing string `json:"missing,omitempty"`
	// Infinite reports that the missing figure is longer than any time: too many requests were not answered.
	Infinite bool `json:"endless,omitempty"`
	// AtLeast reports that the search ended at its bound: the true figure is this or better.
	AtLeast bool `json:"beyond,omitempty"`
	// Below is set if the search's first value failed: the true figure is less than this.
	Below float64 `json:"below,omitempty"`
}

// seedFigure is one seed's figure.
type seedFigure struct {
	value   float64
	missing string // there is no figure
	atLeast bool
	below   float64 // there is no figure, and it would be below this
}

// summarizeSeeds summarizes seeds. A seed without a figure is worse than any with one, so if half of them have none,
// there is no median.
func summarizeSeeds(samples []seedFigure, less bool) SeedSpread {
	var have []seedFigure
	why, endless, below := "", false, 0.0
	for _, s := range samples {
		if s.missing == "" {
			have = append(have, s)
			continue
		}
		why = cmp.Or(why, s.missing)
		below = max(below, s.below)
		endless = endless || math.IsInf(s.value, 1)
	}
	lacking := len(samples) - len(have)
	if len(have) == 0 || 2*lacking >= len(samples) {
		return SeedSpread{Missing: cmp.Or(why, "nothing was run"), Infinite: endless, Below: below}
	}
	slices.SortFunc(have, func(a, b seedFigure) int { return cmp.Compare(a.value, b.value) })
	s := SeedSpread{Min: have[0].value, Max: have[len(have)-1].value}
	// The median of all: those without a figure are at the worse end.
	at := len(samples) / 2
	if !less {
		at -= lacking
	}
	at = min(max(at, 0), len(have)-1)
	s.Median, s.AtLeast = have[at].value, have[at].atLeast
	if below := at - 1; len(samples)%2 == 0 && below >= 0 {
		s.Median = (have[at].value + have[below].value) / 2
		s.AtLeast = have[at].atLeast || have[below].atLeast
	}
	return s
}

// formatCell formats a spread for a table.
func (s *SeedSpread) formatCell(unit string) string {
	if s.Below > 0 {
		return "< " + FormatFigure(s.Below, unit)
	}
	if s.Missing != "" {
		return "-"
	}
	text := FormatFigure(s.Median, unit)
	if s.AtLeast {
		text = "≥ " + text
	}
	low, high := FormatFigure(s.Min, unit), FormatFigure(s.Max, unit)
	if low == high {
		return text
	}
	return fmt.Sprintf("%s (%s to %s)", text, dropUnit(low, high), high)
}
