package experiment

import (
	"fmt"
	"testing"
)

// TestRoundingDoesNotDecideAssertions: figures that differ only in their last bits are equal, others are not.
func TestRoundingDoesNotDecideAssertions(t *testing.T) {
	third := 0.1 + 0.2
	for _, c := range []struct {
		a, b                      float64
		least, most, above, under bool // >=, <=, > and <
	}{
		{0.3, third, true, true, false, false},
		{third, 0.3, true, true, false, false},
		{0.3, 0.3001, false, true, false, true},
		{0.3001, 0.3, true, false, true, false},
		{0, 0, true, true, false, false},
		{0, 1, false, true, false, true},
	} {
		for op, want := range map[string]bool{">=": c.least, "<=": c.most, ">": c.above, "<": c.under} {
			var v AssertionResult
			(&judgeScope{}).compareSides(op, &sideValue{value: c.a}, &sideValue{value: c.b}, &v)
			if v.Holds != want {
				t.Errorf("%v %s %v: %v (%s)", c.a, op, c.b, v.Holds, v.Figures)
			}
		}
	}
}

// TestPolicyBelowItsSearchBound: a policy that fails at the first value of a search has a capacity below that, and
// assertions hold if that alone decides.
func TestPolicyBelowItsSearchBound(t *testing.T) {
	below := summarizeSeeds([]seedFigure{{missing: "even 2 is too much", below: 2}, {missing: "even 2 is too much", below: 2}, {value: 3}}, false)
	if below.Below != 2 || below.formatCell("/s") != "< 2.00 /s" {
		t.Fatalf("%+v", below)
	}
	cases := []CaseReport{{Vary: "rate", Capacity: []CapacityRow{{Policy: "predictive", SeedSpread: SeedSpread{Median: 6}}, {Policy: "random", SeedSpread: below}}}}
	for line, want := range map[string]bool{
		"capacity(predictive) >= 2.5 * capacity(random)":          true,
		"capacity(predictive) >= 4 * capacity(random)":            false,
		"capacity(random) >= 1":                                   false,
		"capacity(random) >= 3":                                   false,
		"capacity(random) <= 3":                                   true,
		"capacity(random) <= 1":                                   false,
		"capacity(predictive) / capacity(random) >= 1":            false,
		"capacity(predictive) - capacity(random) >= 1":            false,
		"capacity(random) + capacity(predictive) <= 9":            true,
		"2 * capacity(random) <= capacity(predictive)":            true,
		"capacity(predictive) >= 2.5 * (capacity(random) + 0.2)":  true,
		"capacity(predictive) >= 0.98 * best(capacity, )":         false,
		"capacity(predictive) >= 0.98 * best(capacity)":           true,
		"capacity(predictive) + capacity(random) >= 6 - 1 * 0.01": false,
	} {
		if v := judgeAssertion(Assertion{Line: line}, cases, "predictive")[0]; v.Holds != want || v.Figures == "" {
			t.Errorf("%s: %s", line, fmt.Sprintf("%v, %s", v.Holds, v.Figures))
		}
	}
}
