package experiment_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// spillRow is one setup with the results of its seeds.
type spillRow struct {
	Name    string
	Results []*spillResult
}

// printSpillTable writes the table, one line per run.
func printSpillTable(w io.Writer, rows []spillRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET-UP\tBEFORE p99\tHALVED p50\tp99\tLATE\tFAILED\tSERVED AWAY\tAFTER p99\tAWAY\tOTHERS' p99\tFAILED\tREFUSED BY PEERS\tSPILLED BACK\tJUMPS")
	for _, row := range rows {
		for _, r := range row.Results {
			h, o := &r.Halved, &r.Others
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f of %.0f\t%d\t%d\n", row.Name,
				formatMillis(r.Before.TTFTQuantile(.99)), formatMillis(h.TTFTQuantile(.5)), formatMillis(h.TTFTQuantile(.99)), formatShare(h.Late, h.Sent), formatShare(h.Failed, h.Sent), formatShare(h.Spilled, h.Sent),
				formatMillis(r.After.TTFTQuantile(.99)), formatShare(r.After.Spilled, r.After.Sent), formatMillis(o.TTFTQuantile(.99)), formatShare(o.Failed, o.Sent), r.Refused, r.Refused+r.Spilled, r.ServedForOthers, r.Jumps)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range rows {
		for _, r := range row.Results {
			_, err := fmt.Fprintf(w, "%s: served away by 10 s %v; held back in the region %s; at peers %s\n", row.Name, r.Slots, formatCounts(r.HeldByReason), formatCounts(r.PeerOutcomes))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func formatMillis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func formatShare(n, of int) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

func formatCounts(m map[string]float64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %.0f", k, m[k]))
	}
	return strings.Join(out, ", ")
}
