package drill

import (
	_ "embed" // the page's template
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// reportPage is a report prepared for its template.
type reportPage struct {
	*Report
	Class    string
	Start    string
	Timeline template.HTML
	Plots    []pagePlot
	Parts    []pageChecks
	Ladder   []pageRow
	Observed []pageRow
	Compared [][]string
	Figures  [][]string
	Counts   string
	Statuses []pageRow
	Harmed   []HarmedRequest
	More     int
}

type pageChecks struct {
	Title string
	Rows  []pageRow
}

// pageRow is a row of a table.
type pageRow struct {
	Class, Word, Text, Value, Node string
	Checked                        int
}

// WritePage writes the report as one web page without any external part.
func (r *Report) WritePage(w io.Writer) error {
	v := r.Verdict
	p := reportPage{Report: r, Class: "fail", Start: r.describeStart(), Timeline: r.drawTimeline(), Plots: r.drawPlots(), Counts: countInvariants(v.Invariants), Harmed: v.Harmed}
	switch v.Outcome {
	case Passed:
		p.Class = "pass"
	case Void, Interrupted:
		p.Class = "wait"
	}
	for _, part := range []pageChecks{{"Hypothesis", checkRows(v.Hypothesis)}, {"Clearing", checkRows(v.Clearing)}, {"Machine", checkRows(v.Machine)}} {
		if len(part.Rows) > 0 {
			p.Parts = append(p.Parts, part)
		}
	}
	for i := range v.Ladder.Rungs {
		x := &v.Ladder.Rungs[i]
		p.Ladder = append(p.Ladder, pageRow{Word: x.Name, Text: x.Title, Value: x.describeTime(), Node: x.Node})
	}
	for i := range v.Ladder.Observers {
		x := &v.Ladder.Observers[i]
		p.Observed = append(p.Observed, pageRow{Node: x.Node, Text: x.Title, Value: x.describeTime()})
	}
	for i := range r.Predictions {
		p.Compared = append(p.Compared, r.Predictions[i].formatCells())
	}
	if len(p.Compared) == 0 {
		for _, x := range v.Figures {
			p.Figures = append(p.Figures, []string{string(x.Phase), x.Metric, x.describe()})
		}
	}
	for _, in := range v.Invariants {
		class := map[InvariantStatus]string{InvariantHeld: "pass", InvariantBroken: "fail"}[in.Status]
		p.Statuses = append(p.Statuses, pageRow{Class: class, Word: in.ID, Text: in.Title, Value: in.describeStatus(), Checked: in.Checked})
	}
	if n := len(p.Harmed); n > maxListedHarm {
		p.Harmed, p.More = p.Harmed[:maxListedHarm], n-maxListedHarm
	}
	return pageTemplate.Execute(w, &p)
}

func checkRows(list []Check) (out []pageRow) {
	for i := range list {
		c := &list[i]
		class := map[string]string{"holds": "pass", "fails": "fail", "asks": "wait"}[c.resultWord()]
		out = append(out, pageRow{Class: class, Word: c.resultWord(), Text: c.Text, Value: c.Measured})
	}
	return out
}
