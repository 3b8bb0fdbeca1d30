package load

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTables writes the report as aligned tables, every column with its unit.
func (r *LoadReport) WriteTables(w io.Writer) error {
	var b strings.Builder
	r.printTotals(&b)
	writeTable(&b, func(t io.Writer) { r.printRegions(t) })
	if len(r.Codes) > 0 {
		b.WriteString("\n")
		writeTable(&b, func(t io.Writer) { r.printCodes(t) })
	}
	if r.DNS.Resolutions > 0 {
		fmt.Fprintf(&b, "\ndns: %d queries, %d failed; %d resolutions, %d failed; %d requests used a cached answer\n",
			r.DNS.Queries, r.DNS.FailedQueries, r.DNS.Resolutions, r.DNS.FailedResolutions, r.DNS.Cached)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *LoadReport) printTotals(b *strings.Builder) {
	fmt.Fprintf(b, "%d requests sent in %s: %d ok, %d refused, %d cut mid-stream, %d lost, %d without an address",
		r.Sent, r.Elapsed.Round(100*time.Millisecond), r.OK, r.Refused, r.Cut, r.Lost, r.NoAddress)
	for _, more := range []struct {
		n    uint64
		what string
	}{{r.Abandoned, "abandoned at the end"}, {r.InFlight, "in flight"}, {r.Skipped, "skipped: too many in flight"}} {
		if more.n > 0 {
			fmt.Fprintf(b, ", %d %s", more.n, more.what)
		}
	}
	fmt.Fprintf(b, "\n%d retried elsewhere before the first byte, %d redirected; left late by p99 %s ms, max %s ms\n\n",
		r.Retried, r.Redirected, formatMillis(r.Lag.P99), formatMillis(r.Lag.Max))
}

func writeTable(b *strings.Builder, rows func(io.Writer)) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows(t)
	t.Flush() // a strings.Builder never fails
}

func (r *LoadReport) printRegions(t io.Writer) {
	fmt.Fprint(t, "region\tok\trefused\tcut\tTTFT p50 ms\tp90 ms\tp99 ms\tITL p50 ms\tp90 ms\tp99 ms\ttotal p50 s\tp99 s\tprompt tok/s\toutput tok/s\t\n")
	for i := range r.Regions {
		s := &r.Regions[i]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t", s.Name, s.OK, s.Refused, s.Cut)
		for _, x := range []LatencySummary{s.TTFT, s.ITL} {
			fmt.Fprintf(t, "%s\t%s\t%s\t", x.formatCell(x.P50, formatMillis), x.formatCell(x.P90, formatMillis), x.formatCell(x.P99, formatMillis))
		}
		fmt.Fprintf(t, "%s\t%s\t", s.Total.formatCell(s.Total.P50, formatSeconds), s.Total.formatCell(s.Total.P99, formatSeconds))
		fmt.Fprintf(t, "%s\t%s\t\n", r.formatRate(s.PromptTokens), r.formatRate(s.OutputTokens))
	}
}

func (r *LoadReport) printCodes(t io.Writer) {
	fmt.Fprint(t, "outcome\tstatus\tcode\trequests\t\n")
	for _, c := range r.Codes {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t\n", c.Outcome, c.Status, c.Code, c.Count)
	}
}

// formatCell formats a percentile, or a dash when nothing was measured.
func (s LatencySummary) formatCell(d time.Duration, unit func(time.Duration) string) string {
	if s.Count == 0 {
		return "-"
	}
	return unit(d)
}

func formatMillis(d time.Duration) string  { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }
func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

func (r *LoadReport) formatRate(n uint64) string {
	if r.Elapsed <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(n)/r.Elapsed.Seconds())
}
