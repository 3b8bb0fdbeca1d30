package experiment

import "testing"

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
