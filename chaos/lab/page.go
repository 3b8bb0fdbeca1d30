package lab

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

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"mainly": mainly, "besides": besides}).Parse(pageText))

// besides is what a cell holds in brackets, which the page shows in small under the rest.
func besides(cell string) string {
	if _, rest, ok := strings.Cut(cell, " ("); ok {
		return strings.TrimSuffix(rest, ")")
	}
	return ""
}

// page is a report as its template wants it: everything decided, nothing left to say.
type page struct {
	*Report
	Standing string
	How      string
	Cases    []pageCase
	Lines    []pageLine
	Meanings []FigureTitle
	Across   []across
	Colours  [colours + 1]struct{}
	Class    string // of the standing
}

type pageCase struct {
	*CaseReport
	Groups   []string
	Heads    []string
	Rows     []pageRow
	Screened bool // some policies were played with fewer seeds than others
	Parts    []partTable
	Load     string
	Capacity []pageRow
	Missing  []string
	Plots    []plot
}

// pageRow is a row of a table, with its policy's colour.
type pageRow struct {
	Policy  string
	Tint    string
	Subject bool
	Seeds   int
	Cells   []string
}

// pageLine is a line with all places where it was judged.
type pageLine struct {
	Class, Word, Line, Open string
	Failing, Holding        []pagePlace
	Fold                    bool // where it holds is folded away
}

type pagePlace struct{ Place, Figures string }

// Page writes the report as one self-contained web page.
func (r *Report) Page(w io.Writer) error {
	p := page{Report: r, Standing: r.Standing(), Across: r.acrosses()}
	switch p.Class = "blocked"; p.Standing {
	case Pass:
		p.Class = "pass"
	case Fail:
		p.Class = "fail"
	}
	if len(r.Seeds) > 0 {
		p.How = fmt.Sprintf("%s form: %v of arrivals, %s", r.Form, r.Duration, seeds(r.Seeds))
		if r.Part > 0 {
			p.How = fmt.Sprintf("not finished, %s of the computing is done; ", Figure(r.Part, "%")) + p.How
		}
		if r.WarmUp > 0 {
			p.How += fmt.Sprintf("; the first %v are not measured", r.WarmUp)
		}
	}
	p.Lines = r.pageLines()
	for i := range r.Cases {
		p.Cases = append(p.Cases, r.Cases[i].page(r.Subject))
	}
	if len(r.Seeds) > 0 {
		for _, col := range columns {
			m, _ := findMetric(col.figure)
			p.Meanings = append(p.Meanings, FigureTitle{col.title, m.title, m.unit})
		}
	}
	return pageTemplate.Execute(w, &p)
}

// pageLines are the lines in their order, each once.
func (r *Report) pageLines() (out []pageLine) {
	blocked := len(r.Needs) > 0 || r.Command != ""
	for i := range r.Lines {
		v := &r.Lines[i]
		if len(out) == 0 || out[len(out)-1].Line != v.Line {
			out = append(out, pageLine{Line: v.Line})
		}
		l, place := &out[len(out)-1], pagePlace{strings.TrimSpace(v.place(r)), v.Figures}
		if v.Holds {
			l.Holding = append(l.Holding, place)
			continue
		}
		l.Failing, l.Open = append(l.Failing, place), strings.TrimSuffix(v.Open, ".")
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

func (c *CaseReport) page(subject string) pageCase {
	out := pageCase{CaseReport: c}
	out.Groups = fleetWords(c.Fleet)
	policies := c.policies()
	colour := func(policy string) int {
		if policy == subject {
			return 0
		}
		others := slices.DeleteFunc(slices.Clone(policies), func(p string) bool { return p == subject })
		return 1 + slices.Index(others, policy)
	}
	out.Screened = c.screened()
	out.Heads = []string{"policy"}
	if out.Screened {
		out.Heads = append(out.Heads, "seeds")
	}
	if c.varied() {
		out.Heads = append(out.Heads, c.Vary)
	}
	for _, col := range columns {
		out.Heads = append(out.Heads, strings.ToLower(col.title))
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		row := pageRow{Policy: r.Policy, Tint: tint(colour(r.Policy)), Subject: r.Policy == subject}
		if out.Screened {
			row.Cells = append(row.Cells, strconv.Itoa(r.Seeds))
		}
		if c.varied() {
			row.Cells = append(row.Cells, c.load(r))
		}
		for _, col := range columns {
			m, _ := findMetric(col.figure)
			s := r.Figures[col.figure]
			row.Cells = append(row.Cells, s.cell(m.unit))
		}
		out.Rows = append(out.Rows, row)
	}
	for i := range c.Capacity {
		k := &c.Capacity[i]
		limit := k.Limit
		if k.Missing != "" {
			limit = k.Missing
		}
		row := pageRow{Policy: k.Policy, Tint: tint(colour(k.Policy)), Subject: k.Policy == subject, Seeds: k.Seeds}
		row.Cells = []string{k.cell(capacityUnit(c.Vary)), orDash(limit)}
		out.Capacity = append(out.Capacity, row)
	}
	out.Missing = c.missing()
	out.Parts, out.Load = c.partTables(), c.kneeWords()
	out.Plots = c.plots(colour)
	return out
}
