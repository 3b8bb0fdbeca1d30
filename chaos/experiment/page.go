package experiment

import (
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"mainly": withoutDetails, "besides": detailsOf}).Parse(pageText))

// detailsOf is the part of a cell in brackets, which the page shows in small print below the rest.
func detailsOf(cell string) string {
	if _, rest, ok := strings.Cut(cell, " ("); ok {
		return strings.TrimSuffix(rest, ")")
	}
	return ""
}

// reportPage is a report prepared for its template.
type reportPage struct {
	*Report
	Standing string
	How      string
	Cases    []pageCase
	Lines    []pageAssertion
	Meanings []FigureTitle
	Across   []figureComparison
	Colours  [colourCount + 1]struct{}
	Class    string // of the standing
}

type pageCase struct {
	*CaseReport
	Groups   []string
	Heads    []string
	Rows     []pageRow
	Screened bool // some policies were run with fewer seeds than others
	Parts    []partTable
	Load     string
	Capacity []pageRow
	Missing  []string
	Plots    []plot
}

// pageRow is a row of a table, with its policy's color.
type pageRow struct {
	Policy  string
	Tint    string
	Subject bool
	Seeds   int
	Cells   []string
}

// pageAssertion is an assertion with all places where it was judged.
type pageAssertion struct {
	Class, Word, Line, Open string
	Failing, Holding        []pagePlace
	Fold                    bool // places where it holds are folded
}

type pagePlace struct{ Place, Figures string }

// WritePage writes the report as one self-contained web page.
func (r *Report) WritePage(w io.Writer) error {
	p := reportPage{Report: r, Standing: r.Status(), Across: r.compareCases()}
	switch p.Class = "blocked"; p.Standing {
	case StatusPass:
		p.Class = "pass"
	case StatusFail:
		p.Class = "fail"
	}
	if len(r.Seeds) > 0 {
		p.How = fmt.Sprintf("%s form: %v of arrivals, %s", r.Form, r.Duration, describeSeeds(r.Seeds))
		if r.DoneShare > 0 {
			p.How = fmt.Sprintf("not finished, %s of the computing is done; ", FormatFigure(r.DoneShare, "%")) + p.How
		}
		if r.WarmUp > 0 {
			p.How += fmt.Sprintf("; the first %v are not measured", r.WarmUp)
		}
	}
	p.Lines = r.assertionRows()
	for i := range r.Cases {
		p.Cases = append(p.Cases, r.Cases[i].makePage(r.Subject))
	}
	if len(r.Seeds) > 0 {
		for _, col := range policyColumns {
			m, _ := findMetric(col.figure)
			p.Meanings = append(p.Meanings, FigureTitle{col.title, m.title, m.unit})
		}
	}
	return pageTemplate.Execute(w, &p)
}

// assertionRows are the assertions in order, each once.
func (r *Report) assertionRows() (out []pageAssertion) {
	blocked := len(r.Needs) > 0 || r.Command != ""
	for i := range r.Lines {
		v := &r.Lines[i]
		if len(out) == 0 || out[len(out)-1].Line != v.Line {
			out = append(out, pageAssertion{Line: v.Line})
		}
		l, place := &out[len(out)-1], pagePlace{strings.TrimSpace(v.describePlace(r)), v.Figures}
		if v.Holds {
			l.Holding = append(l.Holding, place)
			continue
		}
		l.Failing, l.Open = append(l.Failing, place), strings.TrimSuffix(v.KnownReason, ".")
	}
	for i := range out {
		l := &out[i]
		all := len(l.Failing) + len(l.Holding)
		switch {
		case blocked:
			l.Class, l.Word = "blocked", "not run"
		case len(l.Failing) == 0:
			l.Class, l.Word = "pass", "holds"
		default:
			l.Class, l.Word = "fail", "fails"
		}
		if l.Fold = len(l.Holding) > 2; l.Fold && len(l.Failing) > 0 {
			l.Word += fmt.Sprintf(" %d of %d", len(l.Failing), all)
		}
	}
	return out
}

func (c *CaseReport) makePage(subject string) pageCase {
	out := pageCase{CaseReport: c}
	out.Groups = describeFleet(c.Fleet)
	policies := c.policyNames()
	colour := func(policy string) int {
		if policy == subject {
			return 0
		}
		others := slices.DeleteFunc(slices.Clone(policies), func(p string) bool { return p == subject })
		return 1 + slices.Index(others, policy)
	}
	out.Screened = c.isScreened()
	out.Heads = []string{"policy"}
	if out.Screened {
		out.Heads = append(out.Heads, "seeds")
	}
	if c.isVaried() {
		out.Heads = append(out.Heads, c.Vary)
	}
	for _, col := range policyColumns {
		out.Heads = append(out.Heads, strings.ToLower(col.title))
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		row := pageRow{Policy: r.Policy, Tint: colourClass(colour(r.Policy)), Subject: r.Policy == subject}
		if out.Screened {
			row.Cells = append(row.Cells, strconv.Itoa(r.Seeds))
		}
		if c.isVaried() {
			row.Cells = append(row.Cells, c.formatLoad(r))
		}
		for _, col := range policyColumns {
			m, _ := findMetric(col.figure)
			s := r.Figures[col.figure]
			row.Cells = append(row.Cells, s.formatCell(m.unit))
		}
		out.Rows = append(out.Rows, row)
	}
	for i := range c.Capacity {
		k := &c.Capacity[i]
		limit := k.Limit
		if k.Missing != "" {
			limit = k.Missing
		}
		row := pageRow{Policy: k.Policy, Tint: colourClass(colour(k.Policy)), Subject: k.Policy == subject, Seeds: k.Seeds}
		row.Cells = []string{k.formatCell(capacityUnit(c.Vary)), orDash(limit)}
		out.Capacity = append(out.Capacity, row)
	}
	out.Missing = c.missingReasons()
	out.Parts, out.Load = c.makePartTables(), c.describeKnee()
	out.Plots = c.makePlots(colour)
	return out
}
