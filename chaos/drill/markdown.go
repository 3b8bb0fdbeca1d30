package drill

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// maxListedHarm bounds the harmed requests that Markdown and the page list; JSON has all.
const maxListedHarm = 200

// WriteMarkdown writes the report as Markdown.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	v := r.Verdict
	fmt.Fprintf(&b, "# %s: %s\n\n**%s** %s\n\n", r.Name, r.Title, v.Outcome, v.Why)
	for _, h := range r.Hypothesis {
		fmt.Fprintf(&b, "> %s\n", h)
	}
	fmt.Fprintf(&b, "\nRun: %s, seed %d, version %s%s. Log `%s`.\n\n", r.Way, r.Seed, r.Version, r.describeStart(), r.Chain)
	if r.Open != "" {
		fmt.Fprintf(&b, "Open finding: %s\n\n", r.Open)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- Note: %s.\n", n)
	}
	writeMarkdownTable(&b, "Faults", []string{"fault", "from", "to"}, func(row func(...string)) {
		for _, s := range r.Steps {
			row("`"+s.Text+"`", fmt.Sprintf("%.1f s", s.From), fmt.Sprintf("%.1f s", s.To))
		}
	})
	for _, part := range []struct {
		title string
		list  []Check
	}{{"Hypothesis", v.Hypothesis}, {"Clearing", v.Clearing}, {"Machine", v.Machine}} {
		writeMarkdownTable(&b, part.title, []string{"", "statement", "measured"}, func(row func(...string)) {
			for i := range part.list {
				row(part.list[i].resultWord(), "`"+part.list[i].Text+"`", part.list[i].Measured)
			}
		})
	}
	writeMarkdownTable(&b, "Recovery, from the fault", []string{"step", "after", "node"}, func(row func(...string)) {
		for i := range v.Ladder.Rungs {
			x := &v.Ladder.Rungs[i]
			row(x.Title, x.describeTime(), x.Node)
		}
	})
	if len(r.Predictions) > 0 {
		writeMarkdownTable(&b, "Predicted and measured", []string{"phase", "figure", "predicted", "measured", "off by", "allowed"}, func(row func(...string)) {
			for i := range r.Predictions {
				row(r.Predictions[i].formatCells()...)
			}
		})
	} else {
		writeMarkdownTable(&b, "Figures", []string{"phase", "figure", "value"}, func(row func(...string)) {
			for _, x := range v.Figures {
				row(string(x.Phase), x.Metric, x.describe())
			}
		})
	}
	writeMarkdownTable(&b, "Invariants: "+countInvariants(v.Invariants), []string{"id", "invariant", "status", "checked"}, func(row func(...string)) {
		for _, in := range v.Invariants {
			row(in.ID, in.Title, in.describeStatus(), fmt.Sprint(in.Checked))
		}
	})
	r.writeHarmed(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) describeStart() string {
	if r.Started.IsZero() {
		return ""
	}
	return ", started " + r.Started.UTC().Format("2006-01-02 15:04:05 UTC")
}

func writeMarkdownTable(b *bytes.Buffer, title string, heads []string, fill func(row func(...string))) {
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", title, strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	fill(func(cells ...string) {
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	})
}

func (r *Report) writeHarmed(b *bytes.Buffer) {
	v := r.Verdict
	fmt.Fprintf(b, "\n## Harmed requests: %d of %d due\n\nLongest time without a good answer: %.1f s.\n", len(v.Harmed), v.Due, v.WorstGap)
	if len(v.Harmed) == 0 {
		return
	}
	fmt.Fprint(b, "\n| id | due | client | tenant | outcome | worker |\n|---|---|---|---|---|---|\n")
	for i, h := range v.Harmed {
		if i == maxListedHarm {
			fmt.Fprintf(b, "\nand %d more, which the JSON report lists.\n", len(v.Harmed)-i)
			return
		}
		fmt.Fprintf(b, "| %d | %.1f s | %s | %s | %s | %s |\n", h.ID, h.Due, h.Region, h.Tenant, strings.TrimSpace(h.Outcome+" "+h.Code), h.Worker)
	}
}
