package lab

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// partColumns of the tables of tenants and regions.
var partColumns = []struct{ figure, title string }{
	{"goodput", "GOODPUT"},
	{"attainment", "MET SLO"},
	{"throughput", "ANSWERED"},
	{"tokens_rate", "TOKENS"},
	{"ttft_p50", "TTFT P50"},
	{"ttft_p99", "P99"},
	{"tpot_p99", "TPOT P99"},
	{"missed", "MISSED"},
}

// partTable is what was measured of each tenant, or of each region's clients.
type partTable struct {
	Of    string // tenant or region
	Heads []string
	Rows  []partRow
}

type partRow struct {
	Policy string
	Cells  []string
}

// partTables are the case's, where it has several of either.
func (c *CaseReport) partTables() (out []partTable) {
	for _, k := range []struct {
		of    string
		parts func(*Row) map[string]map[string]Spread
	}{
		{"tenant", func(r *Row) map[string]map[string]Spread { return r.Tenants }},
		{"region", func(r *Row) map[string]map[string]Spread { return r.Regions }},
	} {
		t := partTable{Of: k.of, Heads: []string{"policy"}}
		if c.varied() {
			t.Heads = append(t.Heads, c.Vary)
		}
		t.Heads = append(t.Heads, k.of)
		for _, col := range partColumns {
			t.Heads = append(t.Heads, strings.ToLower(col.title))
		}
		for i := range c.Rows {
			t.Rows = append(t.Rows, c.partRows(&c.Rows[i], k.parts(&c.Rows[i]))...)
		}
		if n := len(t.Rows); n > len(c.Rows) && n <= maxPartRows {
			out = append(out, t)
		}
	}
	return out
}

// maxPartRows is the longest table of parts that is shown; longer ones are in the JSON.
const maxPartRows = 120

func (c *CaseReport) partRows(r *Row, parts map[string]map[string]Spread) (out []partRow) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		var cells []string
		if c.varied() {
			cells = append(cells, c.load(r))
		}
		cells = append(cells, name)
		for _, col := range partColumns {
			m, _ := findMetric(col.figure)
			s := parts[name][col.figure]
			cells = append(cells, s.cell(m.unit))
		}
		out = append(out, partRow{r.Policy, cells})
	}
	return out
}

func (t *partTable) print(w io.Writer) {
	fmt.Fprintln(w, strings.ToUpper(strings.Join(t.Heads, "\t")))
	for i := range t.Rows {
		fmt.Fprintf(w, "%s\t%s\n", t.Rows[i].Policy, strings.Join(t.Rows[i].Cells, "\t"))
	}
}

// across is one figure of every policy in every case, side by side.
type across struct {
	Title string
	Heads []string
	Rows  []partRow
}

// acrosses are the figures that the experiment wants to see so.
func (r *Report) acrosses() (out []across) {
	for _, name := range r.Across {
		m, ok := findMetric(name)
		if !ok || len(r.Cases) == 0 {
			continue
		}
		a := across{Title: m.title, Heads: []string{"policy"}}
		for i := range r.Cases {
			a.Heads = append(a.Heads, r.Cases[i].Name)
		}
		for _, policy := range r.Cases[0].policies() {
			for _, v := range r.Cases[0].values() {
				row := partRow{Policy: policy}
				if v != nil {
					row.Policy += " at " + plainNumber(*v)
				}
				var first *Spread
				for i := range r.Cases {
					row.Cells = append(row.Cells, r.Cases[i].beside(policy, v, m, &first))
				}
				a.Rows = append(a.Rows, row)
			}
		}
		out = append(out, a)
	}
	return out
}

// beside is a figure, and how it compares with that of the first case.
func (c *CaseReport) beside(policy string, v *float64, m *metric, first **Spread) string {
	row := c.row(policy, v)
	if row == nil {
		return "-"
	}
	s := row.Figures[m.name]
	text := s.cell(m.unit)
	switch {
	case s.Missing != "":
	case *first == nil:
		*first = &s
	case (*first).Median > 0:
		text += fmt.Sprintf(", %.2fx", s.Median/(*first).Median)
	}
	return text
}

func (a *across) print(w io.Writer) {
	fmt.Fprintln(w, strings.ToUpper(strings.Join(a.Heads, "\t")))
	for i := range a.Rows {
		fmt.Fprintf(w, "%s\t%s\n", a.Rows[i].Policy, strings.Join(a.Rows[i].Cells, "\t"))
	}
}
