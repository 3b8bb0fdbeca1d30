package experiment

import (
	"fmt"
	"io"
	"strings"
)

// compareCases makes the comparisons of the experiment's across.
func (r *Report) compareCases() (out []figureComparison) {
	for _, name := range r.Across {
		m, ok := findMetric(name)
		if !ok || len(r.Cases) == 0 {
			continue
		}
		a := figureComparison{Title: m.title, Heads: []string{"policy"}}
		for i := range r.Cases {
			a.Heads = append(a.Heads, r.Cases[i].Name)
		}
		for _, policy := range r.Cases[0].policyNames() {
			for _, v := range r.Cases[0].variedValues() {
				row := partRow{Policy: policy}
				if v != nil {
					row.Policy += " at " + formatPlain(*v)
				}
				var first *SeedSpread
				for i := range r.Cases {
					row.Cells = append(row.Cells, r.Cases[i].formatAgainstFirst(policy, v, m, &first))
				}
				a.Rows = append(a.Rows, row)
			}
		}
		out = append(out, a)
	}
	return out
}

func (a *figureComparison) printTable(w io.Writer) {
	fmt.Fprintln(w, strings.ToUpper(strings.Join(a.Heads, "\t")))
	for i := range a.Rows {
		fmt.Fprintf(w, "%s\t%s\n", a.Rows[i].Policy, strings.Join(a.Rows[i].Cells, "\t"))
	}
}
