package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxListedFailures bounds the failed assertions that the findings repeat.
const maxListedFailures = 8

// manyCases is the number of cases from which each is described at its greatest load only.
const manyCases = 3

// writeFindings describes the figures in sentences.
func writeFindings(r *Report) (out []string) {
	if len(r.Needs) > 0 {
		return []string{"It cannot run yet, and does not pass: it needs " + strings.Join(r.Needs, "; ") + "."}
	}
	if r.Command != "" {
		return []string{"The simulator does not answer this question: run " + r.Command + "."}
	}
	out = append(out, r.assertionFindings()...)
	for i := range r.Cases {
		c := &r.Cases[i]
		prefix := ""
		if c.Name != "" {
			prefix = c.Name + ": "
		}
		for _, s := range append(c.capacityFindings(r.Subject), c.rowFindings(r.Subject, len(r.Cases) > manyCases)...) {
			out = append(out, prefix+s)
		}
	}
	return out
}

// assertionFindings states how many assertions hold, and for each that does not where and why, once.
func (r *Report) assertionFindings() (out []string) {
	held := 0
	var failing []*AssertionResult
	places := map[string]int{}
	for i := range r.Lines {
		v := &r.Lines[i]
		if v.Holds {
			held++
			continue
		}
		if places[v.Line]++; places[v.Line] == 1 {
			failing = append(failing, v)
		}
	}
	out = append(out, fmt.Sprintf("%d of %d lines hold.", held, len(r.Lines)))
	for i, v := range failing {
		if i == maxListedFailures {
			return append(out, fmt.Sprintf("Nor do %d more, which are listed with the others.", len(failing)-i))
		}
		s := fmt.Sprintf("It does not hold that %s%s: %s.", v.Line, v.describePlace(r), v.Figures)
		if n := places[v.Line] - 1; n > 0 {
			s = strings.TrimSuffix(s, ".") + fmt.Sprintf("; nor in %d more places.", n)
		}
		if v.KnownReason != "" {
			s += " Why: " + strings.TrimSuffix(v.KnownReason, ".") + "."
		}
		out = append(out, s)
	}
	return out
}

// describePlace is the case and value at which an assertion was judged.
func (v *AssertionResult) describePlace(r *Report) string {
	out := ""
	if v.Case != "" {
		out = " in the case " + v.Case
	}
	if v.Value != nil {
		out += " at " + formatPlain(*v.Value)
	}
	return out
}

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

func formatTimes(x float64) string { return fmt.Sprintf("%.2f times", x) }

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

// Status values, for tables and pages.
const (
	StatusPass    = "pass"
	StatusFail    = "FAIL"
	StatusBlocked = "cannot run yet"
	// StatusUnfinished is the status of a partial report.
	StatusUnfinished = "not finished"
)

// Status is the report's result as a short text.
func (r *Report) Status() string {
	switch {
	case len(r.Needs) > 0:
		return StatusBlocked
	case r.Command != "":
		return "not the simulator's"
	case r.DoneShare > 0:
		return StatusUnfinished
	case r.Passed:
		return StatusPass
	}
	return StatusFail
}

// UnexplainedFailures are the failed assertions without a known reason in the experiment's file.
func (r *Report) UnexplainedFailures() []AssertionResult {
	return slices.DeleteFunc(slices.Clone(r.Lines), func(v AssertionResult) bool { return v.Holds || v.KnownReason != "" })
}
