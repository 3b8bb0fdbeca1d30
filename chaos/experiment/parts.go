package experiment

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// partColumns are the columns of the tables of tenants and regions.
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

// partTable is the figures of each tenant, or of each region's clients.
type partTable struct {
	Of    string // tenant or region
	Heads []string
	Rows  []partRow
}

type partRow struct {
	Policy string
	Cells  []string
}

// makePartTables makes the case's tables, if it has several tenants or regions.
func (c *CaseReport) makePartTables() (out []partTable) {
	for _, k := range []struct {
		of    string
		parts func(*PolicyRow) map[string]map[string]SeedSpread
	}{
		{"tenant", func(r *PolicyRow) map[string]map[string]SeedSpread { return r.Tenants }},
		{"region", func(r *PolicyRow) map[string]map[string]SeedSpread { return r.Regions }},
	} {
		t := partTable{Of: k.of, Heads: []string{"policy"}}
		if c.isVaried() {
			t.Heads = append(t.Heads, c.Vary)
		}
		t.Heads = append(t.Heads, k.of)
		for _, col := range partColumns {
			t.Heads = append(t.Heads, strings.ToLower(col.title))
		}
		for i := range c.Rows {
			t.Rows = append(t.Rows, c.makePartRows(&c.Rows[i], k.parts(&c.Rows[i]))...)
		}
		if n := len(t.Rows); n > len(c.Rows) && n <= maxPartRows {
			out = append(out, t)
		}
	}
	return out
}

// maxPartRows is the longest table of parts that is shown; longer ones are only in the JSON.
const maxPartRows = 120

func (c *CaseReport) makePartRows(r *PolicyRow, parts map[string]map[string]SeedSpread) (out []partRow) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		var cells []string
		if c.isVaried() {
			cells = append(cells, c.formatLoad(r))
		}
		cells = append(cells, name)
		for _, col := range partColumns {
			m, _ := findMetric(col.figure)
			s := parts[name][col.figure]
			cells = append(cells, s.formatCell(m.unit))
		}
		out = append(out, partRow{r.Policy, cells})
	}
	return out
}

func (t *partTable) printTable(w io.Writer) {
	fmt.Fprintln(w, strings.ToUpper(strings.Join(t.Heads, "\t")))
	for i := range t.Rows {
		fmt.Fprintf(w, "%s\t%s\n", t.Rows[i].Policy, strings.Join(t.Rows[i].Cells, "\t"))
	}
}

// figureComparison is one figure of every policy in every case.
type figureComparison struct {
	Title string
	Heads []string
	Rows  []partRow
}

// formatAgainstFirst formats a figure, and its ratio to that of the first case.
func (c *CaseReport) formatAgainstFirst(policy string, v *float64, m *metric, first **SeedSpread) string {
	row := c.findRow(policy, v)
	if row == nil {
		return "-"
	}
	s := row.Figures[m.name]
	text := s.formatCell(m.unit)
	switch {
	case s.Missing != "":
	case *first == nil:
		*first = &s
	case (*first).Median > 0:
		text += fmt.Sprintf(", %.2fx", s.Median/(*first).Median)
	}
	return text
}
