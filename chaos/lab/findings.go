package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxListed is how many lines that do not hold the findings repeat.
const maxListed = 8

// manyCases is from how many on each case is told of at its greatest load only.
const manyCases = 3

// findings are what the figures say, in plain words.
func findings(r *Report) (out []string) {
	if len(r.Needs) > 0 {
		return []string{"It cannot run yet, and does not pass: it needs " + strings.Join(r.Needs, "; ") + "."}
	}
	if r.Command != "" {
		return []string{"It is not the simulator that answers this one: run " + r.Command + "."}
	}
	out = append(out, r.lineFinds()...)
	for i := range r.Cases {
		c := &r.Cases[i]
		prefix := ""
		if c.Name != "" {
			prefix = c.Name + ": "
		}
		for _, s := range append(c.capacityFinds(r.Subject), c.rowFinds(r.Subject, len(r.Cases) > manyCases)...) {
			out = append(out, prefix+s)
		}
	}
	return out
}

// lineFinds says how many lines hold, and of each that does not where and why, once.
func (r *Report) lineFinds() (out []string) {
	held := 0
	var failing []*Verdict
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
		if i == maxListed {
			return append(out, fmt.Sprintf("Nor do %d more, which are listed with the others.", len(failing)-i))
		}
		s := fmt.Sprintf("It does not hold that %s%s: %s.", v.Line, v.place(r), v.Figures)
		if n := places[v.Line] - 1; n > 0 {
			s = strings.TrimSuffix(s, ".") + fmt.Sprintf("; nor in %d more places.", n)
		}
		if v.Open != "" {
			s += " Why: " + strings.TrimSuffix(v.Open, ".") + "."
		}
		out = append(out, s)
	}
	return out
}

// place is where a line was judged.
func (v *Verdict) place(r *Report) string {
	out := ""
	if v.Case != "" {
		out = " in the case " + v.Case
	}
	if v.Value != nil {
		out += " at " + plainNumber(*v.Value)
	}
	return out
}

func (c *CaseReport) capacityFinds(subject string) (out []string) {
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
	s := fmt.Sprintf("%s sustains a %s of %s at the SLO", subject, strings.TrimSuffix(c.Vary, "s"), Figure(o.Median, capacityUnit(c.Vary)))
	if c.Vary != "rate" {
		s = fmt.Sprintf("%s sustains %s %s at the SLO", subject, three(o.Median), c.Vary)
	}
	if o.Beyond {
		s += " or more (the search ended there)"
	}
	if best >= 0 {
		b := &c.Capacity[best]
		s += fmt.Sprintf(", %s what the best other policy does (%s, %s)", times(o.Median/b.Median), b.Policy, three(b.Median))
	}
	out = append(out, s+".")
	if o.Limit != "" {
		out = append(out, "Beyond that, "+o.Limit+".")
	}
	return out
}

func times(x float64) string { return fmt.Sprintf("%.2f times", x) }

func (c *CaseReport) rowFinds(subject string, brief bool) (out []string) {
	values := c.values()
	for _, v := range values {
		own := c.row(subject, v)
		if own == nil {
			continue
		}
		at := ""
		if v != nil {
			at = fmt.Sprintf("At %s, ", c.valueWords(*v))
		}
		if len(values) > 3 && !same(v, values[len(values)-1]) && !same(v, values[0]) || brief && !same(v, values[len(values)-1]) {
			continue // the ends say enough, and of many cases the greatest load
		}
		var parts []string
		for _, m := range []string{"goodput", "ttft_p90", "ttft_p99", "hit_rate"} {
			if s := c.against(own, v, m, subject); s != "" {
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

// against compares the subject's figure with the best of the others.
func (c *CaseReport) against(own *Row, value *float64, name, subject string) string {
	m, _ := findMetric(name)
	o := own.Figures[name]
	if o.Endless {
		return "no " + name // why is what keeps it from the SLO, which is said beside it
	}
	if o.Missing != "" {
		return "no " + name + " (" + o.Missing + ")"
	}
	if name == "hit_rate" && o.Median == 0 {
		return "" // a workload without shared prefixes
	}
	s := name + " " + Figure(o.Median, m.unit)
	e := env{cases: []CaseReport{*c}, here: c, value: value, subject: subject}
	b := e.among(&call{pick: "best", metric: m}, c, value)
	if b.why != "" || math.IsInf(b.v, 0) || b.v == 0 {
		return s
	}
	return fmt.Sprintf("%s (best of the others: %s)", s, b.words)
}

// Tags of a verdict, for tables and pages.
const (
	Pass    = "pass"
	Fail    = "FAIL"
	Blocked = "cannot run yet"
	// Unfinished is a report of what is done so far.
	Unfinished = "not finished"
)

// Standing is the report's outcome in a word.
func (r *Report) Standing() string {
	switch {
	case len(r.Needs) > 0:
		return Blocked
	case r.Command != "":
		return "not the simulator's"
	case r.Part > 0:
		return Unfinished
	case r.Passed:
		return Pass
	}
	return Fail
}

// Unexplained are the lines that do not hold and of which the experiment's file does not say why.
func (r *Report) Unexplained() []Verdict {
	return slices.DeleteFunc(slices.Clone(r.Lines), func(v Verdict) bool { return v.Holds || v.Open != "" })
}
