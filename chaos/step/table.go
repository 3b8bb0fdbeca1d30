package step

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Row is one set-up with the results of its seeds.
type Row struct {
	Name    string
	Results []*Result
}

// Print writes the table: of each figure the mean over the seeds, and its spread.
func Print(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET-UP\tOVER s\tPEAK\tSETTLE s\tSETTLED\tSD\tDIP\tOTHERS' PEAK\tPLANS\tMOVED\tTWICE\tSHED\tLATE\tSERVED\tSERVED SD")
	for _, r := range rows {
		fmt.Fprintf(t, "%s", r.Name)
		for _, f := range columns {
			lo, mean, hi := math.Inf(1), 0.0, math.Inf(-1)
			for _, x := range r.Results {
				v := f.of(x)
				if x.Live && !f.live {
					v = math.NaN() // not seen from outside
				}
				lo, mean, hi = min(lo, v), mean+v/float64(len(r.Results)), max(hi, v)
			}
			if math.IsNaN(mean) {
				fmt.Fprint(t, "\t-")
				continue
			}
			fmt.Fprintf(t, "\t"+f.form, mean)
			if fmt.Sprintf(f.form, lo) != fmt.Sprintf(f.form, hi) {
				fmt.Fprintf(t, " ("+f.form+"-"+f.form+")", lo, hi)
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

type column struct {
	form string
	of   func(*Result) float64
	live bool // also known of a planet that runs
}

var columns = []column{
	{"%.0f", func(r *Result) float64 { return r.Near.Over }, true},
	{"%.2f", func(r *Result) float64 { return r.Near.Peak }, true},
	{"%.0f", func(r *Result) float64 { return r.Near.Settle }, true},
	{"%.2f", func(r *Result) float64 { return r.Near.Settled }, true},
	{"%.3f", func(r *Result) float64 { return r.Near.SD }, true},
	{"%.2f", func(r *Result) float64 { return r.Near.Dip }, true},
	{"%.2f", func(r *Result) float64 { return r.Far }, false},
	{"%.0f", func(r *Result) float64 { return float64(r.Plans) }, false},
	{"%.1f%%", func(r *Result) float64 { return 100 * r.Once }, true},
	{"%.1f%%", func(r *Result) float64 { return 100 * r.Again }, true},
	{"%.2f%%", func(r *Result) float64 { return 100 * share(r.Shed, r.Sent) }, true},
	{"%.2f%%", func(r *Result) float64 { return 100 * share(r.Late, r.Sent) }, true},
	{"%.2f", func(r *Result) float64 { return r.Served.Settled }, false},
	{"%.3f", func(r *Result) float64 { return r.Served.SD }, false},
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
