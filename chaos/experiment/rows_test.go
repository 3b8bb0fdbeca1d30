package experiment

import "testing"

// TestLimitTextComesFromTheMedianSeed: the reason of a missed SLO is that of the median seed, not of the first or the
// worst; without a reason there the text is empty.
func TestLimitTextComesFromTheMedianSeed(t *testing.T) {
	seed := func(attainment float64, limit string) *runJob {
		return &runJob{policy: "p", outcome: &runOutcome{figures: map[string]seedFigure{"attainment": {value: attainment}}, limit: limit}}
	}
	row := makeRow([]*runJob{seed(0.2, "dreadful"), seed(1, ""), seed(0.97, "middling")})
	if row.Limit != "middling" {
		t.Errorf("it says %q", row.Limit)
	}
	if row := makeRow([]*runJob{seed(0.2, "dreadful"), seed(1, ""), seed(1, "")}); row.Limit != "" {
		t.Errorf("most seeds meet their SLO, and it says %q", row.Limit)
	}
	search := func(v float64, why, limit string) *runJob {
		return &runJob{policy: "p", searched: &searchResult{seedFigure: seedFigure{value: v, missing: why}, limit: limit}}
	}
	if row := makeCapacityRow([]*runJob{search(0, "none", "dreadful"), search(30, "", "lucky"), search(20, "", "middling")}); row.Limit != "middling" {
		t.Errorf("of a capacity it says %q", row.Limit)
	}
}
