package experiment

import (
	"cmp"
	"math"
	"slices"
)

// rankPolicies are the policies but the subject that have a figure, in the order of best or worst.
func (e *judgeScope) rankPolicies(c *figureCall, at *CaseReport, value *float64) []string {
	figures := map[string]float64{}
	var out []string
	for _, policy := range at.policyNames() {
		a := at.figureOf(c, policy, value)
		if policy == e.subject || a.missing != "" && !math.IsInf(a.value, 1) {
			continue
		}
		out, figures[policy] = append(out, policy), a.value
	}
	slices.SortStableFunc(out, func(a, b string) int {
		if c.wantsLowest() {
			a, b = b, a
		}
		return cmp.Compare(figures[b], figures[a])
	})
	return out
}

// wantsLowest reports whether the call selects the lowest figure.
func (c *figureCall) wantsLowest() bool { return (c.choice == "best") == c.metric.lowerIsBetter }
