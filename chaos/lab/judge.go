package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// amount is what one side of a line comes to.
type amount struct {
	v float64
	// why is set where it comes to nothing.
	why string
	// floor says that the true amount is this or more, and vague that it could be either.
	floor, vague bool
	roof         bool // the true amount is less than this
	unit         string
	words        string // with the figures put in
}

// judge holds a line against the cases, in each place that it speaks of.
func judge(l Line, cases []CaseReport, subject string) []Verdict {
	if l.Needs != "" {
		return []Verdict{{Line: l.Line, Figures: "cannot be judged yet: needs " + l.Needs}}
	}
	s, err := parseLine(l.Line)
	if err != nil { // decoding has refused it
		return []Verdict{{Line: l.Line, Figures: err.Error(), Open: l.Open}}
	}
	openCase, openValue := s.open()
	var out []Verdict
	for _, e := range s.places(cases, subject) {
		verdict := e.judge(s)
		verdict.Line, verdict.Open = l.Line, l.Open
		if openCase {
			verdict.Case = e.here.Name
		}
		if openValue {
			verdict.Value = e.value
		}
		out = append(out, verdict)
	}
	return out
}

// places are where a line is judged: each that it leaves open.
func (s *statement) places(cases []CaseReport, subject string) (out []env) {
	openCase, openValue := s.open()
	for i := range cases {
		c := &cases[i]
		if !openCase {
			c = s.home(cases)
		}
		values := []*float64{nil}
		if openValue {
			values = c.values()
		}
		for _, v := range values {
			out = append(out, env{cases: cases, here: c, value: v, subject: subject})
		}
		if !openCase {
			break
		}
	}
	return out
}

// open says whether the line speaks of every case, and of every value.
func (s *statement) open() (cases, values bool) {
	for _, c := range s.calls() {
		cases = cases || c.where.name == ""
		values = values || c.where.value == nil && c.metric.name != capacityName
	}
	return cases, values
}

// home is the case whose values a line runs through that names all its cases: the first that it leaves the value of open.
func (s *statement) home(cases []CaseReport) *CaseReport {
	for _, c := range s.calls() {
		i := slices.IndexFunc(cases, func(r CaseReport) bool { return r.Name == c.where.name })
		if i >= 0 && c.where.value == nil && c.metric.name != capacityName {
			return &cases[i]
		}
	}
	return &cases[0]
}

// values that the case was run at, in their order; one nil where nothing was varied.
func (c *CaseReport) values() (out []*float64) {
	for i := range c.Rows {
		v := c.Rows[i].Value
		if !slices.ContainsFunc(out, func(o *float64) bool { return same(o, v) }) {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		out = []*float64{nil}
	}
	return out
}

func same(a, b *float64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// env is where a line is judged.
type env struct {
	cases   []CaseReport
	here    *CaseReport
	value   *float64
	subject string
}

func (e *env) judge(s *statement) Verdict {
	l, r := e.amount(s.left), e.amount(s.right)
	v := Verdict{}
	if l.why == "" && !math.IsInf(l.v, 0) {
		v.Left = &l.v
	}
	if r.why == "" && !math.IsInf(r.v, 0) {
		v.Right = &r.v
	}
	switch {
	case l.why != "" && !math.IsInf(l.v, 1):
		v.Figures = "cannot be judged: " + l.why
	case r.why != "" && !math.IsInf(r.v, 1):
		v.Figures = "cannot be judged: " + r.why
	default:
		e.compare(s.op, &l, &r, &v)
	}
	return v
}

func (e *env) compare(op string, l, r *amount, v *Verdict) {
	up := op == ">=" || op == ">"
	same := alike(l.v, r.v)
	less, more := l.v < r.v && !same, l.v > r.v && !same
	switch op {
	case ">=":
		v.Holds = more || same
	case "<=":
		v.Holds = less || same
	case ">":
		v.Holds = more
	case "<":
		v.Holds = less
	}
	if math.IsInf(l.v, 1) && math.IsInf(r.v, 1) {
		v.Holds = false // neither has a figure
	}
	left, right := side(l, 3), side(r, 3)
	for digits := 4; digits <= 9 && !same && mainly(left) == mainly(right); digits++ {
		left, right = side(l, digits), side(r, digits) // figures that differ are not to look the same
	}
	v.Figures = fmt.Sprintf("%s %s %s", left, sign(op, v.Holds), right)
	// A floor can only rise: that can make or break the comparison, unless it is on the right side of it already.
	unsure := l.vague || r.vague || l.floor && v.Holds != up || r.floor && v.Holds == up || l.roof && v.Holds == up || r.roof && v.Holds != up
	if unsure {
		v.Holds = false
		v.Figures += ", which decides nothing: a search ended at its bound; raise capacity.to"
		if l.roof || r.roof {
			v.Figures = strings.Replace(v.Figures, "raise capacity.to", "begin it lower", 1)
		}
	}
}

// alike says that two figures are the same but for how they were rounded on the way: as many answers over the same time.
func alike(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Abs(a) && !math.IsInf(a, 0)
}

// sign is the comparison as it came out.
func sign(op string, holds bool) string {
	if holds {
		return op
	}
	return map[string]string{">=": "<", "<=": ">", ">": "<=", "<": ">="}[op]
}

// mainly is a side without the figures that it comes from.
func mainly(side string) string {
	text, _, _ := strings.Cut(side, " (")
	return strings.TrimPrefix(strings.TrimPrefix(text, "at least "), "less than ")
}

func side(a *amount, digits int) string {
	if math.IsInf(a.v, 1) {
		return "- (" + a.why + ")"
	}
	text := precisely(a.v, a.unit, digits)
	if a.floor {
		text = "at least " + text
	}
	if a.roof {
		text = "less than " + text
	}
	if a.words != "" && a.words != text {
		text += " (" + a.words + ")"
	}
	return text
}

func (e *env) amount(n *node) amount {
	switch n.op {
	case 'n':
		unit := ""
		if strings.HasSuffix(n.text, "s") {
			unit = "s"
		} else if strings.HasSuffix(n.text, "%") {
			unit = "%"
		}
		return amount{v: n.number, unit: unit}
	case 'c':
		return e.figure(&n.call)
	}
	l, r := e.amount(n.left), e.amount(n.right)
	out := amount{why: cmp.Or(l.why, r.why), unit: cmp.Or(l.unit, r.unit), vague: l.vague || r.vague}
	out.floor, out.roof = l.floor || r.floor, l.roof || r.roof
	out.vague = out.vague || out.floor && out.roof
	switch n.op {
	case '+':
		out.v = l.v + r.v
	case '-':
		out.v = l.v - r.v
		out.vague = out.vague || r.floor || r.roof
	case '*':
		out.v = l.v * r.v
	case '/':
		out.vague = out.vague || r.floor || r.roof
		if r.v == 0 {
			return amount{why: "a division by zero"}
		}
		if l.unit == r.unit {
			out.unit = ""
		}
		out.v = l.v / r.v
	}
	if math.IsNaN(out.v) || math.IsInf(out.v, -1) {
		return amount{why: cmp.Or(out.why, "the figures come to nothing")}
	}
	out.words = factor(n.left, &l) + " " + string(n.op) + " " + factor(n.right, &r)
	return out
}

func factor(n *node, a *amount) string {
	switch {
	case n.op == 'n':
		return n.text
	case n.op != 'c':
		return "(" + a.words + ")"
	case a.words != "":
		return a.words
	case math.IsInf(a.v, 1):
		return "-"
	}
	return Figure(a.v, a.unit)
}

// figure finds what a call asks for.
func (e *env) figure(c *call) amount {
	at, value := e.at(c)
	if at == nil {
		return amount{why: "there is no case " + c.where.name}
	}
	if c.pick == "" {
		return at.amount(c, c.policy, value)
	}
	return e.among(c, at, value)
}

// at is the case and the value of which a call speaks; no case where there is none of its name.
func (e *env) at(c *call) (*CaseReport, *float64) {
	at, value := e.here, e.value
	if c.where.name != "" {
		i := slices.IndexFunc(e.cases, func(r CaseReport) bool { return r.Name == c.where.name })
		if i < 0 {
			return nil, nil
		}
		at = &e.cases[i]
	}
	if c.where.value != nil {
		value = c.where.value
	} else if at != e.here {
		if own := at.values(); !slices.ContainsFunc(own, func(o *float64) bool { return same(o, value) }) && len(own) == 1 {
			value = own[0]
		}
	}
	return at, value
}

// among is the best or the worst of the policies but the subject.
func (e *env) among(c *call, at *CaseReport, value *float64) amount {
	var chosen amount
	found, why := false, ""
	for _, policy := range at.policies() {
		if policy == e.subject {
			continue
		}
		a := at.amount(c, policy, value)
		if a.why != "" && !math.IsInf(a.v, 1) {
			why = cmp.Or(why, a.why)
			continue
		}
		better := a.v > chosen.v
		if c.less() {
			better = a.v < chosen.v
		}
		if !found || better {
			chosen = a
			chosen.words = policy + " " + Figure(a.v, a.unit)
			if math.IsInf(a.v, 1) {
				chosen.words = ""
			}
		}
		found = true
	}
	if !found {
		return amount{why: cmp.Or(why, "no policy but "+e.subject+" was run")}
	}
	return chosen
}

// policies that the case was run with, in their order.
func (c *CaseReport) policies() (out []string) {
	for i := range c.Rows {
		if !slices.Contains(out, c.Rows[i].Policy) {
			out = append(out, c.Rows[i].Policy)
		}
	}
	for i := range c.Capacity {
		if !slices.Contains(out, c.Capacity[i].Policy) {
			out = append(out, c.Capacity[i].Policy)
		}
	}
	return out
}

// row finds a policy's row at a value.
func (c *CaseReport) row(policy string, value *float64) *Row {
	for i := range c.Rows {
		if c.Rows[i].Policy == policy && same(c.Rows[i].Value, value) {
			return &c.Rows[i]
		}
	}
	return nil
}

func (c *CaseReport) amount(q *call, policy string, value *float64) amount {
	m := q.metric
	if m.name == capacityName {
		for i := range c.Capacity {
			if c.Capacity[i].Policy == policy {
				a := amountOf(&c.Capacity[i].Spread, m)
				a.unit = capacityUnit(c.Vary)
				return a
			}
		}
		return amount{why: "no capacity was searched for with " + policy}
	}
	r := c.row(policy, value)
	if r == nil {
		at := ""
		if value != nil {
			at = fmt.Sprintf(" at %s %s", c.Vary, plainNumber(*value))
		}
		return amount{why: policy + " was not run" + at}
	}
	figures := r.Figures
	if q.where.tenant != "" {
		if figures = r.Tenants[q.where.tenant]; figures == nil {
			return amount{why: "there is no tenant " + q.where.tenant}
		}
	}
	if q.where.region != "" {
		if figures = r.Regions[q.where.region]; figures == nil {
			return amount{why: "there is no region " + q.where.region}
		}
	}
	s := figures[m.name]
	return amountOf(&s, m)
}

func amountOf(s *Spread, m *metric) amount {
	if s.Below > 0 {
		return amount{v: s.Below, roof: true, unit: m.unit}
	}
	if s.Missing != "" {
		a := amount{why: m.name + " has no figure: " + s.Missing, unit: m.unit}
		if s.Endless {
			a.v = math.Inf(1)
		}
		return a
	}
	return amount{v: s.Median, floor: s.Beyond, unit: m.unit}
}

func capacityUnit(vary string) string {
	if vary == "rate" {
		return "/s"
	}
	return ""
}

// Figure writes a number with its unit, to three digits.
func Figure(v float64, unit string) string { return precisely(v, unit, 3) }

// precisely is a figure to so many digits.
func precisely(v float64, unit string, digits int) string {
	switch unit {
	case "%":
		return strconv.FormatFloat(100*v, 'f', digits-2, 64) + " %"
	case "s":
		if v < 1 {
			return rounded(1000*v, digits) + " ms"
		}
		return rounded(v, digits) + " s"
	case "$":
		return "$" + rounded(v, digits)
	case "":
		return rounded(v, digits)
	}
	return rounded(v, digits) + " " + unit
}

// three is a number to three digits, without an exponent.
func three(v float64) string { return rounded(v, 3) }

func rounded(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	after := max(digits-1-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	return strconv.FormatFloat(v, 'f', min(after, digits+3), 64)
}

// plainNumber is a number as people write it: whole ones whole, others to two digits after the point, or four below one.
func plainNumber(v float64) string {
	scale := 100.0
	if v < 1 {
		scale = 1e4
	}
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}
