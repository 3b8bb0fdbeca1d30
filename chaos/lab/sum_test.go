package lab

import "testing"

// TestWordsAreOfTheMedianSeed: what keeps a policy from its SLO is said of the seed whose figure is the median, not of the first or
// the worst; where that one has nothing to say, nothing is said.
func TestWordsAreOfTheMedianSeed(t *testing.T) {
	seed := func(attainment float64, limit string) *job {
		return &job{policy: "p", outcome: &outcome{figures: map[string]sample{"attainment": {v: attainment}}, limit: limit}}
	}
	row := rowOf([]*job{seed(0.2, "dreadful"), seed(1, ""), seed(0.97, "middling")})
	if row.Limit != "middling" {
		t.Errorf("it says %q", row.Limit)
	}
	if row := rowOf([]*job{seed(0.2, "dreadful"), seed(1, ""), seed(1, "")}); row.Limit != "" {
		t.Errorf("most seeds meet their SLO, and it says %q", row.Limit)
	}
	search := func(v float64, why, limit string) *job {
		return &job{policy: "p", found: &found{sample: sample{v: v, why: why}, limit: limit}}
	}
	if row := capacityRow([]*job{search(0, "none", "dreadful"), search(30, "", "lucky"), search(20, "", "middling")}); row.Limit != "middling" {
		t.Errorf("of a capacity it says %q", row.Limit)
	}
}
