package experiment

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// policyColumns are the columns of the table of policies.
var policyColumns = []struct{ figure, title string }{
	{"goodput", "GOODPUT"},
	{"attainment", "MET SLO"},
	{"ttft_p50", "TTFT P50"},
	{"ttft_p90", "P90"},
	{"ttft_p99", "P99"},
	{"tpot_p99", "TPOT P99"},
	{"e2e_p50", "E2E P50"},
	{"hit_rate", "HIT RATE"},
	{"imbalance", "IMBALANCE"},
	{"missed", "MISSED"},
}

// WriteTables writes the report as aligned tables, every figure with its unit: the median of the seeds, and their
// minimum and maximum if they differ.
func (r *Report) WriteTables(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s: %s\n", r.ID, r.Title, r.Status())
	if r.Question != "" {
		fmt.Fprintln(&b, r.Question)
	}
	if r.DoneShare > 0 {
		fmt.Fprintf(&b, "not finished: %s of the computing is done, and lines are judged by that\n", FormatFigure(r.DoneShare, "%"))
	}
	if len(r.Seeds) > 0 {
		warm := ""
		if r.WarmUp > 0 {
			warm = fmt.Sprintf(", the first %v not measured", r.WarmUp)
		}
		fmt.Fprintf(&b, "%s form: %v of arrivals%s, %s\n", r.Form, r.Duration, warm, describeSeeds(r.Seeds))
	}
	for i := range r.Cases {
		r.Cases[i].printCase(&b)
	}
	for _, a := range r.compareCases() {
		fmt.Fprintf(&b, "\n%s, and how many times that of the first case\n", a.Title)
		writeAligned(&b, func(t io.Writer) { a.printTable(t) })
	}
	if len(r.Lines) > 0 {
		fmt.Fprintln(&b)
		writeAligned(&b, func(t io.Writer) { r.printAssertions(t) })
	}
	fmt.Fprintln(&b)
	for _, f := range r.Finds {
		fmt.Fprintln(&b, f)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func describeSeeds(s []uint64) string {
	if len(s) == 1 {
		return fmt.Sprintf("seed %d", s[0])
	}
	return fmt.Sprintf("seeds %d to %d: median (least to greatest)", s[0], s[len(s)-1])
}

func (c *CaseReport) printCase(b *bytes.Buffer) {
	fmt.Fprintln(b)
	if c.Name != "" {
		fmt.Fprintf(b, "case %s: %s\n", c.Name, orDash(c.Title))
	}
	what := "fleet    "
	for _, words := range describeFleet(c.Fleet) {
		fmt.Fprintf(b, "%s %s\n", what, words)
		what = "         "
	}
	fmt.Fprintf(b, "workload  %s\nSLO       %s\nsignals   %s\n", c.Workload, c.SLO, c.Stale)
	if knee := c.describeKnee(); knee != "" {
		fmt.Fprintf(b, "load      %s\n", knee)
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(b, "warning   %s\n", w)
	}
	if len(c.Rows) > 0 {
		writeAligned(b, func(t io.Writer) { c.printRows(t) })
		for _, why := range c.missingReasons() {
			fmt.Fprintf(b, "- %s\n", why)
		}
	}
	for _, p := range c.makePartTables() {
		writeAligned(b, func(t io.Writer) { p.printTable(t) })
	}
	if len(c.Capacity) > 0 {
		writeAligned(b, func(t io.Writer) { c.printCapacity(t) })
	}
}

func formatThousands(n int) string {
	if n >= 10_000 {
		return fmt.Sprintf("%dk", (n+500)/1000)
	}
	return fmt.Sprint(n)
}

// rowLabel is a row's policy, and its value if there are several.
func (c *CaseReport) rowLabel(r *PolicyRow) string {
	if r.Value == nil || len(c.variedValues()) < 2 {
		return r.Policy
	}
	return r.Policy + " at " + formatPlain(*r.Value)
}

// describeValue is a value with its meaning.
func (c *CaseReport) describeValue(v float64) string {
	if k := c.Knee; k != nil && k.Load == 0 {
		return fmt.Sprintf("%s of the knee, %s %s", formatPlain(v), c.Vary, formatThreeDigits(k.loadAt(v)))
	}
	return c.Vary + " " + formatPlain(v)
}

func (c *CaseReport) isVaried() bool {
	return slices.ContainsFunc(c.Rows, func(r PolicyRow) bool { return r.Value != nil })
}

// isScreened reports whether some policies were run with fewer seeds than others.
func (c *CaseReport) isScreened() bool {
	least, most := 0, 0
	note := func(n int) {
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	for i := range c.Rows {
		note(c.Rows[i].Seeds)
	}
	for i := range c.Capacity {
		note(c.Capacity[i].Seeds)
	}
	return least != most
}

func (c *CaseReport) printRows(t io.Writer) {
	fmt.Fprint(t, "POLICY\t")
	screened := c.isScreened()
	if screened {
		fmt.Fprint(t, "SEEDS\t")
	}
	if c.isVaried() {
		fmt.Fprintf(t, "%s\t", strings.ToUpper(c.Vary))
	}
	for _, col := range policyColumns {
		fmt.Fprintf(t, "%s\t", col.title)
	}
	fmt.Fprintln(t)
	for i := range c.Rows {
		r := &c.Rows[i]
		fmt.Fprintf(t, "%s\t", r.Policy)
		if screened {
			fmt.Fprintf(t, "%d\t", r.Seeds)
		}
		if c.isVaried() {
			fmt.Fprintf(t, "%s\t", c.formatLoad(r))
		}
		for _, col := range policyColumns {
			m, _ := findMetric(col.figure)
			s := r.Figures[col.figure]
			fmt.Fprintf(t, "%s\t", s.formatCell(m.unit))
		}
		fmt.Fprintln(t)
	}
}

// missingReasons are the reasons why cells contain a dash, each once.
func (c *CaseReport) missingReasons() (out []string) {
	var reasons []string
	who := map[string][]string{}
	for i := range c.Rows {
		for _, col := range policyColumns {
			why := c.Rows[i].Figures[col.figure].Missing
			if name := c.rowLabel(&c.Rows[i]); why != "" && !slices.Contains(who[why], name) {
				if len(who[why]) == 0 {
					reasons = append(reasons, why)
				}
				who[why] = append(who[why], name)
			}
		}
	}
	for _, why := range reasons {
		names := strings.Join(who[why], ", ")
		if len(who[why]) == len(c.Rows) && len(c.Rows) > 1 {
			names = "all"
		}
		out = append(out, names+": "+why)
	}
	return out
}

// dropUnit removes a unit that is repeated after it.
func dropUnit(low, high string) string {
	number, unit, _ := strings.Cut(low, " ")
	if _, u, _ := strings.Cut(high, " "); u == unit && unit != "" {
		return number
	}
	return low
}

func (c *CaseReport) printCapacity(t io.Writer) {
	screened := c.isScreened()
	fmt.Fprint(t, "POLICY\t")
	if screened {
		fmt.Fprint(t, "SEEDS\t")
	}
	fmt.Fprintln(t, "CAPACITY\tWHAT LIMITS IT")
	for i := range c.Capacity {
		r := &c.Capacity[i]
		limit := r.Limit
		if r.Missing != "" {
			limit = r.Missing
		}
		fmt.Fprintf(t, "%s\t", r.Policy)
		if screened {
			fmt.Fprintf(t, "%d\t", r.Seeds)
		}
		fmt.Fprintf(t, "%s\t%s\n", r.formatCell(capacityUnit(c.Vary)), orDash(limit))
	}
}

func (r *Report) printAssertions(t io.Writer) {
	for i := range r.Lines {
		v := &r.Lines[i]
		word := StatusFail
		switch {
		case len(r.Needs) > 0 || r.Command != "":
			word = "-"
		case v.Holds:
			word = StatusPass
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\n", word, v.Line, v.describePlace(r), v.Figures)
		if v.KnownReason != "" && !v.Holds {
			fmt.Fprintf(t, "\t\topen: %s\n", v.KnownReason)
		}
	}
}

// writeAligned writes tab-separated rows in columns, without trailing spaces.
func writeAligned(b *bytes.Buffer, rows func(io.Writer)) {
	var cells bytes.Buffer
	t := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', 0)
	rows(t)
	t.Flush() // a bytes.Buffer never fails
	for line := range bytes.Lines(cells.Bytes()) {
		b.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
