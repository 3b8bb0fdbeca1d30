package drill

import (
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// comparisons are the operators of conditions.
var comparisons = []string{">=", "<=", ">", "<"}

// parseCondition reads: PHASE [region R | tenant T] METRIC OP VALUE [of before].
func (p *fileParser) parseCondition(r *lineReader, phase RunPhase) {
	c := Condition{Phase: phase}
	var ok bool
	if c.Slice, ok = p.parseSlice(r, false); !ok {
		return
	}
	m, ok := p.parseMetric(r)
	if !ok {
		return
	}
	c.Metric = m.name
	if c.Op, c.Value, ok = p.parseBound(r, m, true); !ok {
		return
	}
	if r.skipWord("of") {
		if !r.expectWord("before") {
			return
		}
		c.OfBefore = true
		if phase == PhaseBefore {
			p.text.report(r.words[r.next-2].at, "a figure before the fault is compared with itself", `remove "of before", or write during or after`)
			return
		}
	}
	if r.expectEnd() {
		p.file.Conditions = append(p.file.Conditions, c)
	}
}

// parseSlice reads: region R, or tenant T; nothing, unless one is required.
func (p *fileParser) parseSlice(r *lineReader, required bool) (s Slice, ok bool) {
	switch r.peekText() {
	case "region", "tenant":
		kind, _ := r.takeWord("")
		name, ok := r.takeWord("the name of the " + kind.text)
		if kind.text == "region" {
			s.Region = name.text
		} else {
			s.Tenant = name.text
		}
		if ok && !p.checkSlice(s, name.at) {
			return s, false
		}
		return s, ok
	}
	if required {
		w, ok := r.takeWord("region or tenant, and its name")
		if ok {
			p.text.report(w.at, `found "`+w.text+`" where region or tenant is expected`, "write region or tenant, and its name")
		}
		return s, false
	}
	return s, true
}

func (p *fileParser) parseMetric(r *lineReader) (m metricInfo, ok bool) {
	w, ok := r.takeWord("a figure, such as goodput or ttft p99")
	if !ok {
		return m, false
	}
	name := w.text
	if name == "ttft" || name == "tpot" {
		q, ok := r.takeWord("p50 or p99")
		if !ok {
			return m, false
		}
		name += " " + q.text
		w.at.width = q.at.column + q.at.width - w.at.column
	}
	m, ok = findMetric(name)
	if !ok {
		p.text.report(w.at, `unknown figure "`+name+`"`, strict.SuggestName(name, MetricNames(), "figures"))
	}
	return m, ok
}

// parseBound reads an operator and a value in the unit of a figure, or as a percentage of the figure before.
func (p *fileParser) parseBound(r *lineReader, m metricInfo, relative bool) (op string, v float64, ok bool) {
	w, ok := r.takeWord("one of " + strings.Join(comparisons, ", "))
	if !ok {
		return "", 0, false
	}
	if !slices.Contains(comparisons, w.text) {
		p.text.report(w.at, `found "`+w.text+`" where a comparison is expected`, "write one of "+strings.Join(comparisons, ", "))
		return "", 0, false
	}
	if m.unit == "s" && !(relative && p.isRelative(r)) {
		d, _, ok := r.takeTime()
		return w.text, d.Seconds(), ok
	}
	most := 100.0
	if relative {
		most = 10_000
	}
	v, at, ok := r.takeShare(most)
	if ok && v > 1 && !(relative && r.peekText() == "of") {
		p.text.report(at, "the percentage is above 100 %", "use at most 100 %")
		return "", 0, false
	}
	return w.text, v, ok
}

// isRelative reports whether the next value is a percentage.
func (p *fileParser) isRelative(r *lineReader) bool {
	if r.next >= len(r.words) {
		return false
	}
	_, unit, ok := splitUnit(r.words[r.next].text)
	return ok && (unit == "%" || unit == "" && r.next+1 < len(r.words) && r.words[r.next+1].text == "%")
}

// parseControl reads: control region R METRIC within SHARE.
func (p *fileParser) parseControl(r *lineReader) {
	var c Control
	var ok bool
	if c.Slice, ok = p.parseSlice(r, true); !ok {
		return
	}
	m, ok := p.parseMetric(r)
	if !ok || !r.expectWord("within") {
		return
	}
	c.Metric = m.name
	if c.Within, _, ok = r.takeShare(1000); ok && r.expectEnd() {
		p.file.Controls = append(p.file.Controls, c)
	}
}

// parseBudget reads: harmed <= 0.5 % of requests due, or: harmed <= 3 of requests due.
func (p *fileParser) parseBudget(r *lineReader) {
	if !r.expectWord("<=") {
		return
	}
	v, unit, at, ok := r.takeQuantity("a percentage such as 0.5 %, or a number of requests", "%")
	if !ok {
		return
	}
	b := &HarmBudget{}
	switch {
	case unit == "%" && v <= 100:
		b.Share = fromPercent(v)
	case unit == "" && v == float64(int(v)) && v <= 1e6:
		b.Count, b.IsCount = int(v), true
	default:
		p.text.report(at, "the budget is neither a percentage nor a number of requests", "write it as: harmed <= 0.5 % of requests due")
		return
	}
	for _, w := range []string{"of", "requests", "due"} {
		if !r.expectWord(w) {
			return
		}
	}
	if r.expectEnd() {
		p.file.Budget = b
	}
}

// parseObjective reads: rto RUNG <= TIME.
func (p *fileParser) parseObjective(r *lineReader) {
	w, ok := r.takeWord("a step of the recovery, such as dns or slo")
	if !ok {
		return
	}
	if !slices.Contains(RungNames(), w.text) {
		p.text.report(w.at, `unknown step "`+w.text+`" of the recovery`, strict.SuggestName(w.text, RungNames(), "steps"))
		return
	}
	if !r.expectWord("<=") {
		return
	}
	o := Objective{Rung: w.text}
	if o.Bound, _, ok = r.takeTime(); ok && r.expectEnd() {
		p.file.Objectives = append(p.file.Objectives, o)
	}
}

// parseStop reads: stop when METRIC OP VALUE for TIME.
func (p *fileParser) parseStop(r *lineReader) {
	if !r.expectWord("when") {
		return
	}
	m, ok := p.parseMetric(r)
	if !ok {
		return
	}
	s := StopRule{Metric: m.name}
	if s.Op, s.Value, ok = p.parseBound(r, m, false); !ok || !r.expectWord("for") {
		return
	}
	var at fileSpan
	if s.For, at, ok = r.takeTime(); !ok || !r.expectEnd() {
		return
	}
	if s.For < minStopWindow {
		p.text.report(at, "the time is too short to judge", "use at least "+formatTime(minStopWindow))
		return
	}
	p.file.Stops = append(p.file.Stops, s)
}

// parsePage reads: page ALERT within TIME.
func (p *fileParser) parsePage(r *lineReader) {
	w, ok := r.takeWord("the name of an alert")
	if !ok || !r.expectWord("within") {
		return
	}
	a := ExpectedPage{Alert: w.text}
	if a.Within, _, ok = r.takeTime(); ok && r.expectEnd() {
		p.file.Pages = append(p.file.Pages, a)
	}
}
