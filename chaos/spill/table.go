package spill

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one set-up with the results of its seeds.
type Row struct {
	Name    string
	Results []*Result
}

// Print writes the table, a line for each run.
func Print(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET-UP\tBEFORE p99\tHALVED p50\tp99\tLATE\tFAILED\tSERVED AWAY\tAFTER p99\tAWAY\tOTHERS' p99\tFAILED\tREFUSED BY PEERS\tTO AND FRO\tJUMPS")
	for _, row := range rows {
		for _, r := range row.Results {
			h, o := &r.Halved, &r.Others
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f of %.0f\t%d\t%d\n", row.Name,
				ms(r.Before.Quantile(.99)), ms(h.Quantile(.5)), ms(h.Quantile(.99)), part(h.Late, h.Sent), part(h.Failed, h.Sent), part(h.Away, h.Sent),
				ms(r.After.Quantile(.99)), part(r.After.Away, r.After.Sent), ms(o.Quantile(.99)), part(o.Failed, o.Sent), r.Refused, r.Refused+r.Spilled, r.Back, r.Jumps)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range rows {
		for _, r := range row.Results {
			_, err := fmt.Fprintf(w, "%s: served away by 10 s %v; held back at home %s; guests %s\n", row.Name, r.Slots, words(r.Held), words(r.Guests))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func part(n, of int) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

func words(m map[string]float64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %.0f", k, m[k]))
	}
	return strings.Join(out, ", ")
}
