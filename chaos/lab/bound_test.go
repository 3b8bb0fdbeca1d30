package lab

import (
	"fmt"
	"testing"
)

// TestBelow: a policy that sustains less than a search begins with is less than that, and lines hold where that alone decides.
func TestBelow(t *testing.T) {
	below := spread([]sample{{why: "even 2 is too much", below: 2}, {why: "even 2 is too much", below: 2}, {v: 3}}, false)
	if below.Below != 2 || below.cell("/s") != "< 2.00 /s" {
		t.Fatalf("%+v", below)
	}
	cases := []CaseReport{{Vary: "rate", Capacity: []CapacityRow{{Policy: "predictive", Spread: Spread{Median: 6}}, {Policy: "random", Spread: below}}}}
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
		if v := judge(Line{Line: line}, cases, "predictive")[0]; v.Holds != want || v.Figures == "" {
			t.Errorf("%s: %s", line, fmt.Sprintf("%v, %s", v.Holds, v.Figures))
		}
	}
}
