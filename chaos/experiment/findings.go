package experiment

import (
	"fmt"
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

func formatTimes(x float64) string { return fmt.Sprintf("%.2f times", x) }

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
