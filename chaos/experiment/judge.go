package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// sideValue is the value of one side of an assertion.
type sideValue struct {
	value float64
	// missing is the reason why there is no value.
	missing string
	// atLeast reports that the true value is this or more, and uncertain that it could be either.
	atLeast, uncertain bool
	below              bool // the true value is below this
	unit               string
	text               string // with the figures inserted
}

// judgeAssertion judges an assertion against the cases, at each case and value that it covers.
func judgeAssertion(l Assertion, cases []CaseReport, subject string) []AssertionResult {
	if l.Needs != "" {
		return []AssertionResult{{Line: l.Line, Figures: "cannot be judged yet: needs " + l.Needs}}
	}
	s, err := parseAssertion(l.Line)
	if err != nil { // decoding has refused it
		return []AssertionResult{{Line: l.Line, Figures: err.Error(), KnownReason: l.Open}}
	}
	openCase, openValue := s.isOpen()
	var out []AssertionResult
	for _, e := range s.judgeScopes(cases, subject) {
		verdict := e.judgeComparison(s)
		verdict.Line, verdict.KnownReason = l.Line, l.Open
		if openCase {
			verdict.Case = e.current.Name
		}
		if openValue {
			verdict.Value = e.value
		}
		out = append(out, verdict)
	}
	return out
}

// variedValues are the values that the case was run at, in order; one nil if nothing was varied.
func (c *CaseReport) variedValues() (out []*float64) {
	for i := range c.Rows {
		v := c.Rows[i].Value
		if !slices.ContainsFunc(out, func(o *float64) bool { return equalValues(o, v) }) {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		out = []*float64{nil}
	}
	return out
}

func equalValues(a, b *float64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// judgeScope is the case and value at which an assertion is judged.
type judgeScope struct {
	cases   []CaseReport
	current *CaseReport
	value   *float64
	subject string
}

func (e *judgeScope) judgeComparison(s *comparisonExpr) AssertionResult {
	l, r := e.evaluateExpr(s.left), e.evaluateExpr(s.right)
	v := AssertionResult{}
	if l.missing == "" && !math.IsInf(l.value, 0) {
		v.Left = &l.value
	}
	if r.missing == "" && !math.IsInf(r.value, 0) {
		v.Right = &r.value
	}
	switch {
	case l.missing != "" && !math.IsInf(l.value, 1):
		v.Figures = "cannot be judged: " + l.missing
	case r.missing != "" && !math.IsInf(r.value, 1):
		v.Figures = "cannot be judged: " + r.missing
	default:
		e.compareSides(s.op, &l, &r, &v)
	}
	return v
}

func (e *judgeScope) compareSides(op string, l, r *sideValue, v *AssertionResult) {
	up := op == ">=" || op == ">"
	same := isAlmostEqual(l.value, r.value)
	less, more := l.value < r.value && !same, l.value > r.value && !same
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
	if math.IsInf(l.value, 1) && math.IsInf(r.value, 1) {
		v.Holds = false // neither has a figure
	}
	left, right := formatSide(l, 3), formatSide(r, 3)
	for digits := 4; digits <= 9 && !same && withoutDetails(left) == withoutDetails(right); digits++ {
		left, right = formatSide(l, digits), formatSide(r, digits) // figures that differ must print differently
	}
	v.Figures = fmt.Sprintf("%s %s %s", left, actualOperator(op, v.Holds), right)
	// A lower bound can only rise: that can change the comparison, unless it is on the right side already.
	unsure := l.uncertain || r.uncertain || l.atLeast && v.Holds != up || r.atLeast && v.Holds == up || l.below && v.Holds == up || r.below && v.Holds != up
	if unsure {
		v.Holds = false
		v.Figures += ", which decides nothing: a search ended at its bound; raise capacity.to"
		if l.below || r.below {
			v.Figures = strings.Replace(v.Figures, "raise capacity.to", "begin it lower", 1)
		}
	}
}

// isAlmostEqual reports whether two figures differ only by rounding: equal numbers of answers over the same time.
func isAlmostEqual(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Abs(a) && !math.IsInf(a, 0)
}

// actualOperator is the operator that describes the result.
func actualOperator(op string, holds bool) string {
	if holds {
		return op
	}
	return map[string]string{">=": "<", "<=": ">", ">": "<=", "<": ">="}[op]
}

// withoutDetails is a side without the figures that it is computed from.
func withoutDetails(side string) string {
	text, _, _ := strings.Cut(side, " (")
	return strings.TrimPrefix(strings.TrimPrefix(text, "at least "), "less than ")
}

func formatSide(a *sideValue, digits int) string {
	if math.IsInf(a.value, 1) {
		return "- (" + a.missing + ")"
	}
	text := formatDigits(a.value, a.unit, digits)
	if a.atLeast {
		text = "at least " + text
	}
	if a.below {
		text = "less than " + text
	}
	if a.text != "" && a.text != text {
		text += " (" + a.text + ")"
	}
	return text
}

func (e *judgeScope) evaluateExpr(n *exprNode) sideValue {
	switch n.kind {
	case 'n':
		unit := ""
		if strings.HasSuffix(n.text, "s") {
			unit = "s"
		} else if strings.HasSuffix(n.text, "%") {
			unit = "%"
		}
		return sideValue{value: n.number, unit: unit}
	case 'c':
		return e.evaluateFigure(&n.call)
	}
	l, r := e.evaluateExpr(n.left), e.evaluateExpr(n.right)
	out := sideValue{missing: cmp.Or(l.missing, r.missing), unit: cmp.Or(l.unit, r.unit), uncertain: l.uncertain || r.uncertain}
	out.atLeast, out.below = l.atLeast || r.atLeast, l.below || r.below
	out.uncertain = out.uncertain || out.atLeast && out.below
	switch n.kind {
	case '+':
		out.value = l.value + r.value
	case '-':
		out.value = l.value - r.value
		out.uncertain = out.uncertain || r.atLeast || r.below
	case '*':
		out.value = l.value * r.value
	case '/':
		out.uncertain = out.uncertain || r.atLeast || r.below
		if r.value == 0 {
			return sideValue{missing: "a division by zero"}
		}
		if l.unit == r.unit {
			out.unit = ""
		}
		out.value = l.value / r.value
	}
	if math.IsNaN(out.value) || math.IsInf(out.value, -1) {
		return sideValue{missing: cmp.Or(out.missing, "the figures come to nothing")}
	}
	out.text = formatFactor(n.left, &l) + " " + string(n.kind) + " " + formatFactor(n.right, &r)
	return out
}

func formatFactor(n *exprNode, a *sideValue) string {
	switch {
	case n.kind == 'n':
		return n.text
	case n.kind != 'c':
		return "(" + a.text + ")"
	case a.text != "":
		return a.text
	case math.IsInf(a.value, 1):
		return "-"
	}
	return FormatFigure(a.value, a.unit)
}

// evaluateFigure evaluates a figure call.
func (e *judgeScope) evaluateFigure(c *figureCall) sideValue {
	at, value := e.resolveScope(c)
	if at == nil {
		return sideValue{missing: "there is no case " + c.scope.caseName}
	}
	if c.choice == "" {
		return at.figureOf(c, c.policy, value)
	}
	return e.bestOrWorst(c, at, value)
}

// resolveScope is the case and value of a call; nil if there is no case of that name.
func (e *judgeScope) resolveScope(c *figureCall) (*CaseReport, *float64) {
	at, value := e.current, e.value
	if c.scope.caseName != "" {
		i := slices.IndexFunc(e.cases, func(r CaseReport) bool { return r.Name == c.scope.caseName })
		if i < 0 {
			return nil, nil
		}
		at = &e.cases[i]
	}
	if c.scope.value != nil {
		value = c.scope.value
	} else if at != e.current {
		if own := at.variedValues(); !slices.ContainsFunc(own, func(o *float64) bool { return equalValues(o, value) }) && len(own) == 1 {
			value = own[0]
		}
	}
	return at, value
}

// bestOrWorst is the best or the worst of the policies other than the subject.
func (e *judgeScope) bestOrWorst(c *figureCall, at *CaseReport, value *float64) sideValue {
	var chosen sideValue
	found, why := false, ""
	for _, policy := range at.policyNames() {
		if policy == e.subject {
			continue
		}
		a := at.figureOf(c, policy, value)
		if a.missing != "" && !math.IsInf(a.value, 1) {
			why = cmp.Or(why, a.missing)
			continue
		}
		better := a.value > chosen.value
		if c.wantsLowest() {
			better = a.value < chosen.value
		}
		if !found || better {
			chosen = a
			chosen.text = policy + " " + FormatFigure(a.value, a.unit)
			if math.IsInf(a.value, 1) {
				chosen.text = ""
			}
		}
		found = true
	}
	if !found {
		return sideValue{missing: cmp.Or(why, "no policy but "+e.subject+" was run")}
	}
	return chosen
}

// policyNames are the policies that the case was run with, in order.
func (c *CaseReport) policyNames() (out []string) {
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

// findRow finds a policy's row at a value.
func (c *CaseReport) findRow(policy string, value *float64) *PolicyRow {
	for i := range c.Rows {
		if c.Rows[i].Policy == policy && equalValues(c.Rows[i].Value, value) {
			return &c.Rows[i]
		}
	}
	return nil
}

func (c *CaseReport) figureOf(q *figureCall, policy string, value *float64) sideValue {
	m := q.metric
	if m.name == capacityName {
		for i := range c.Capacity {
			if c.Capacity[i].Policy == policy {
				a := valueOfSpread(&c.Capacity[i].SeedSpread, m)
				a.unit = capacityUnit(c.Vary)
				return a
			}
		}
		return sideValue{missing: "no capacity was searched for with " + policy}
	}
	r := c.findRow(policy, value)
	if r == nil {
		at := ""
		if value != nil {
			at = fmt.Sprintf(" at %s %s", c.Vary, formatPlain(*value))
		}
		return sideValue{missing: policy + " was not run" + at}
	}
	figures := r.Figures
	if q.scope.tenant != "" {
		if figures = r.Tenants[q.scope.tenant]; figures == nil {
			return sideValue{missing: "there is no tenant " + q.scope.tenant}
		}
	}
	if q.scope.region != "" {
		if figures = r.Regions[q.scope.region]; figures == nil {
			return sideValue{missing: "there is no region " + q.scope.region}
		}
	}
	s := figures[m.name]
	return valueOfSpread(&s, m)
}

func valueOfSpread(s *SeedSpread, m *metric) sideValue {
	if s.Below > 0 {
		return sideValue{value: s.Below, below: true, unit: m.unit}
	}
	if s.Missing != "" {
		a := sideValue{missing: m.name + " has no figure: " + s.Missing, unit: m.unit}
		if s.Infinite {
			a.value = math.Inf(1)
		}
		return a
	}
	return sideValue{value: s.Median, atLeast: s.AtLeast, unit: m.unit}
}

func capacityUnit(vary string) string {
	if vary == "rate" {
		return "/s"
	}
	return ""
}

// FormatFigure formats a number with its unit, to three digits.
func FormatFigure(v float64, unit string) string { return formatDigits(v, unit, 3) }

// formatDigits formats a figure to a number of digits.
func formatDigits(v float64, unit string, digits int) string {
	switch unit {
	case "%":
		return strconv.FormatFloat(100*v, 'f', digits-2, 64) + " %"
	case "s":
		if v < 1 {
			return roundDigits(1000*v, digits) + " ms"
		}
		return roundDigits(v, digits) + " s"
	case "$":
		return "$" + roundDigits(v, digits)
	case "":
		return roundDigits(v, digits)
	}
	return roundDigits(v, digits) + " " + unit
}

// formatThreeDigits formats a number to three digits, without an exponent.
func formatThreeDigits(v float64) string { return roundDigits(v, 3) }

func roundDigits(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	after := max(digits-1-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	return strconv.FormatFloat(v, 'f', min(after, digits+3), 64)
}

// formatPlain formats a number for reading: integers as such, others to two digits after the point, or four below
// one.
func formatPlain(v float64) string {
	scale := 100.0
	if v < 1 {
		scale = 1e4
	}
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}
