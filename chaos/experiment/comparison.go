package experiment

import "slices"

// figureCalls are the figure calls of an assertion.
func (s *comparisonExpr) figureCalls() (out []*figureCall) {
	var walk func(*exprNode)
	walk = func(n *exprNode) {
		if n == nil {
			return
		}
		if n.kind == 'c' {
			out = append(out, &n.call)
		}
		walk(n.left)
		walk(n.right)
	}
	walk(s.left)
	walk(s.right)
	return out
}

// judgeScopes are the cases and values at which an assertion is judged.
func (s *comparisonExpr) judgeScopes(cases []CaseReport, subject string) (out []judgeScope) {
	openCase, openValue := s.isOpen()
	for i := range cases {
		c := &cases[i]
		if !openCase {
			c = s.mainCase(cases)
		}
		values := []*float64{nil}
		if openValue {
			values = c.variedValues()
		}
		for _, v := range values {
			out = append(out, judgeScope{cases: cases, current: c, value: v, subject: subject})
		}
		if !openCase {
			break
		}
	}
	return out
}

// isOpen reports whether the assertion covers every case, and every value.
func (s *comparisonExpr) isOpen() (cases, values bool) {
	for _, c := range s.figureCalls() {
		cases = cases || c.scope.caseName == ""
		values = values || c.scope.value == nil && c.metric.name != capacityName
	}
	return cases, values
}

// mainCase is the case whose values an assertion covers if it names all its cases: the first without a value.
func (s *comparisonExpr) mainCase(cases []CaseReport) *CaseReport {
	for _, c := range s.figureCalls() {
		i := slices.IndexFunc(cases, func(r CaseReport) bool { return r.Name == c.scope.caseName })
		if i >= 0 && c.scope.value == nil && c.metric.name != capacityName {
			return &cases[i]
		}
	}
	return &cases[0]
}
