package main

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/billing"
)

//go:embed report.html.tmpl
var reportTemplateText string

func newReportCommand() *cobra.Command {
	var month, format, prices, file string
	cmd := &cobra.Command{
		Use:   "report --month YYYY-MM DIR|FILE...",
		Short: "Write a month's usage by tenant, model and region with its cost, as HTML or CSV",
		Long: `Write a month's usage by tenant, model and region with its cost, from the files that gateways write if usage.dir is set. Give the
files of all gateways; each request counts once, even if files overlap. Months are in UTC.

The cost of a request is what its record has: the model's price in the spec when it was served. With --prices the tokens are
priced by the models of another spec instead; models that it does not list, or lists without a price, cost nothing.

HTML is one file without scripts or links to other files. CSV has one line for each day, tenant, model and region.`,
		Example: "  spillway report --month 2026-10 /var/lib/spillway/usage --file october.html\n  spillway report --month 2026-10 --format csv --prices spec.yaml usage-*.jsonl",
		GroupID: "operate",
		Args:    requireMinArgs("report --month YYYY-MM DIR|FILE...", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := newMonthReport(month, prices, args)
			if err != nil {
				return err
			}
			write, ok := map[string]func(io.Writer) error{"html": r.writeHTML, "csv": r.writeCSV}[format]
			if !ok {
				return fmt.Errorf("unknown format %q\nhint: write html or csv", format)
			}
			for _, p := range r.Problems {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			if file == "" {
				return write(cmd.OutOrStdout())
			}
			return writeReportFile(file, write)
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "month", "", "month of the report, such as 2026-10")
	f.StringVar(&format, "format", "html", "html or csv")
	f.StringVar(&prices, "prices", "", "spec file with the prices of models (default: the costs in the records)")
	f.StringVar(&file, "file", "", "file to write (default: standard output)")
	panicOnError(cmd.MarkFlagRequired("month"))
	return cmd
}

// writeReportFile writes a file whole or not at all.
func writeReportFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name + ".part")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}

// monthReport is the usage of a month.
type monthReport struct {
	Month    string
	Made     time.Time
	Prices   string // the spec with the prices; empty: as recorded
	Total    billing.Total
	Days     []reportLine // of the whole month
	Tables   []reportTable
	Problems []string
	rows     []usageRow
}

// reportTable has the sums by one key.
type reportTable struct {
	Title string
	Key   string
	Lines []reportLine
}

// reportLine is the sum of one group.
type reportLine struct {
	Name string
	billing.Total
	Height float64 // of its bar, from 0 to 100
}

// Dollars returns the cost as text.
func (l reportLine) Dollars() string { return formatMicros(l.Micros) }

// Share returns the line's share of the month's cost, or of its tokens where nothing has a price.
func (r *monthReport) Share(l reportLine) string {
	part, whole := l.Micros, r.Total.Micros
	if whole == 0 {
		part, whole = l.Prompt+l.Completion, r.Total.Prompt+r.Total.Completion
	}
	if whole == 0 {
		return "-"
	}
	return formatPercent(float64(part) / float64(whole))
}

// Dollars returns the cost of the month as text.
func (r *monthReport) Dollars() string { return formatMicros(r.Total.Micros) }

func formatMicros(micros int64) string { return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6) }

// newMonthReport sums the usage files.
func newMonthReport(month, prices string, files []string) (*monthReport, error) {
	first, err := time.Parse("2006-01", month)
	if err != nil {
		return nil, fmt.Errorf("--month %q is no month\nhint: write the year and the month, such as 2026-10", month)
	}
	price, err := readPrices(prices)
	if err != nil {
		return nil, err
	}
	read, err := billing.ReadFiles(files, billing.GroupingKeys())
	if err != nil {
		return nil, err
	}
	r := &monthReport{Month: month, Made: time.Now().UTC(), Prices: prices, Problems: listUsageProblems(read)}
	for _, row := range sortUsageRows(read) {
		if !strings.HasPrefix(row.Day, month+"-") {
			continue
		}
		if price != nil {
			row.Micros = price(&row)
		}
		r.rows = append(r.rows, row)
		addTotal(&r.Total, &row.Total)
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("the files have no usage of %s\nhint: `spillway usage --by day %s` lists the days that they have", month, strings.Join(files, " "))
	}
	if r.Total.Estimated > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d of %d requests have estimated token counts: their engines reported none", r.Total.Estimated, r.Total.Requests))
	}
	r.Tables = []reportTable{
		{"Tenants", "Tenant", r.sumBy(func(k *billing.TotalKey) string { return k.Tenant })},
		{"Models", "Model", r.sumBy(func(k *billing.TotalKey) string { return k.Model })},
		{"Regions", "Region", r.sumBy(func(k *billing.TotalKey) string { return k.Region })},
		{"Tenants and models", "Tenant / model / region", r.sumBy(func(k *billing.TotalKey) string { return k.Tenant + " / " + k.Model + " / " + k.Region })},
	}
	r.Days = r.sumDays(first)
	return r, nil
}

func addTotal(sum, t *billing.Total) {
	sum.Requests += t.Requests
	sum.Prompt += t.Prompt
	sum.Cached += t.Cached
	sum.Completion += t.Completion
	sum.Micros += t.Micros
	sum.Estimated += t.Estimated
	sum.BytesIn += t.BytesIn
	sum.BytesOut += t.BytesOut
}

// readPrices returns the cost of a row by the prices of a spec file, nil without one.
func readPrices(file string) (func(*usageRow) int64, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading prices: %w", err)
	}
	s, err := spec.Decode(file, text)
	if err != nil {
		alone, aloneErr := spec.DecodeStandalone(file, text) // of a zone or a region that runs alone, or only with models
		if aloneErr != nil {
			return nil, err
		}
		s = alone
	}
	return func(row *usageRow) int64 {
		m := s.FindModel(row.Model)
		if m == nil {
			return 0
		}
		return m.Price.CostMicros(int(row.Prompt), int(row.Cached), int(row.Completion))
	}, nil
}

// sumBy sums the rows by a name, the most expensive group first.
func (r *monthReport) sumBy(name func(*billing.TotalKey) string) (out []reportLine) {
	at := map[string]int{}
	for i := range r.rows {
		n := name(&r.rows[i].TotalKey)
		j, known := at[n]
		if !known {
			j = len(out)
			at[n] = j
			out = append(out, reportLine{Name: n})
		}
		addTotal(&out[j].Total, &r.rows[i].Total)
	}
	slices.SortStableFunc(out, func(a, b reportLine) int {
		if a.Micros != b.Micros {
			return int(min(max(b.Micros-a.Micros, -1), 1))
		}
		return int(min(max(b.Prompt+b.Completion-a.Prompt-a.Completion, -1), 1))
	})
	return out
}

// sumDays returns one line for each day of the month, with the height of its bar.
func (r *monthReport) sumDays(first time.Time) (out []reportLine) {
	for day := first; day.Month() == first.Month(); day = day.AddDate(0, 0, 1) {
		out = append(out, reportLine{Name: day.Format("2006-01-02")})
	}
	for i := range r.rows {
		for j := range out {
			if out[j].Name == r.rows[i].Day {
				addTotal(&out[j].Total, &r.rows[i].Total)
			}
		}
	}
	value := func(l *reportLine) float64 { return float64(l.Micros) }
	if r.Total.Micros == 0 {
		value = func(l *reportLine) float64 { return float64(l.Prompt + l.Completion) }
	}
	most := 0.0
	for i := range out {
		most = max(most, value(&out[i]))
	}
	for i := range out {
		if most > 0 {
			out[i].Height = 100 * value(&out[i]) / most
		}
	}
	return out
}

func (r *monthReport) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "tenant", "model", "region", "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "bytes_in", "bytes_out", "estimated_requests", "dollars"}) // Error reports it below
	for i := range r.rows {
		row := &r.rows[i]
		line := []string{row.Day, row.Tenant, row.Model, row.Region}
		for _, n := range []int64{row.Requests, row.Prompt, row.Cached, row.Completion, row.BytesIn, row.BytesOut, row.Estimated} {
			line = append(line, strconv.FormatInt(n, 10))
		}
		_ = out.Write(append(line, formatMicros(row.Micros))) // as above
	}
	out.Flush()
	return out.Error()
}

func (r *monthReport) writeHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"barX": func(i int) float64 { return float64(i) * 20 }, "barY": func(h float64) float64 { return 110 - h }, "dayOf": func(s string) string { return s[len(s)-2:] }, "count": groupDigits,
	}).Parse(reportTemplateText)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// groupDigits writes a number in groups of three digits.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:] // a narrow space
	}
	return s
}
