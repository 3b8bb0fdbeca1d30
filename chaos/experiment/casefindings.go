package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

func (c *CaseReport) capacityFindings(subject string) (out []string) {
	if len(c.Capacity) == 0 {
		return nil
	}
	own, best := -1, -1
	for i := range c.Capacity {
		if c.Capacity[i].Policy == subject {
			own = i
		} else if c.Capacity[i].Missing == "" && (best < 0 || c.Capacity[i].Median > c.Capacity[best].Median) {
			best = i
		}
	}
	if own < 0 {
		return nil
	}
	o := &c.Capacity[own]
	if o.Missing != "" {
		return []string{fmt.Sprintf("%s sustains nothing that was tried: %s.", subject, o.Missing)}
	}
	s := fmt.Sprintf("%s sustains a %s of %s at the SLO", subject, strings.TrimSuffix(c.Vary, "s"), FormatFigure(o.Median, capacityUnit(c.Vary)))
	if c.Vary != "rate" {
		s = fmt.Sprintf("%s sustains %s %s at the SLO", subject, formatThreeDigits(o.Median), c.Vary)
	}
	if o.AtLeast {
		s += " or more (the search ended there)"
	}
	if best >= 0 {
		b := &c.Capacity[best]
		s += fmt.Sprintf(", %s what the best other policy does (%s, %s)", formatTimes(o.Median/b.Median), b.Policy, formatThreeDigits(b.Median))
	}
	out = append(out, s+".")
	if o.Limit != "" {
		out = append(out, "Beyond that, "+o.Limit+".")
	}
	return out
}

func (c *CaseReport) rowFindings(subject string, brief bool) (out []string) {
	values := c.variedValues()
	for _, v := range values {
		own := c.findRow(subject, v)
		if own == nil {
			continue
		}
		at := ""
		if v != nil {
			at = fmt.Sprintf("At %s, ", c.describeValue(*v))
		}
		if len(values) > 3 && !equalValues(v, values[len(values)-1]) && !equalValues(v, values[0]) || brief && !equalValues(v, values[len(values)-1]) {
			continue // the first and last values suffice, and with many cases the greatest load
		}
		var parts []string
		for _, m := range []string{"goodput", "ttft_p90", "ttft_p99", "hit_rate"} {
			if s := c.compareWithBest(own, v, m, subject); s != "" {
				parts = append(parts, s)
			}
		}
		if len(parts) > 0 {
			out = append(out, at+subject+" has "+strings.Join(parts, "; ")+".")
		}
		if own.Limit != "" {
			out = append(out, fmt.Sprintf("%s%s misses the SLO of some: %s.", at, subject, own.Limit))
		}
	}
	return out
}

// compareWithBest compares the subject's figure with the best of the others.
func (c *CaseReport) compareWithBest(own *PolicyRow, value *float64, name, subject string) string {
	m, _ := findMetric(name)
	o := own.Figures[name]
	if o.Infinite {
		return "no " + name // the reason is given with the SLO
	}
	if o.Missing != "" {
		return "no " + name + " (" + o.Missing + ")"
	}
	if name == "hit_rate" && o.Median == 0 {
		return "" // a workload without shared prefixes
	}
	s := name + " " + FormatFigure(o.Median, m.unit)
	e := judgeScope{cases: []CaseReport{*c}, current: c, value: value, subject: subject}
	b := e.bestOrWorst(&figureCall{choice: "best", metric: m}, c, value)
	if b.missing != "" || math.IsInf(b.value, 0) || b.value == 0 {
		return s
	}
	return fmt.Sprintf("%s (best of the others: %s)", s, b.text)
}

// addWarnings adds a warning for the rows whose trace ended early.
func (c *CaseReport) addWarnings() {
	c.Warnings = nil
	add := func(policy, short string) {
		if w := policy + ": " + short; short != "" && len(c.Warnings) < 10 && !slices.Contains(c.Warnings, w) {
			c.Warnings = append(c.Warnings, w)
		}
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		who := r.Policy
		if r.Value != nil {
			who += " at " + formatPlain(*r.Value)
		}
		add(who, r.earlyEnd)
	}
	for i := range c.Capacity {
		add(c.Capacity[i].Policy+"'s capacity", c.Capacity[i].earlyEnd)
	}
}
