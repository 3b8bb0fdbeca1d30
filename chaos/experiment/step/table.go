package step

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// SetupRow is one setup with the results of its seeds.
type SetupRow struct {
	Name    string
	Results []*StepResult
}

// PrintTable writes the table: the mean of each figure over the seeds, and its spread.
func PrintTable(w io.Writer, rows []SetupRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SET-UP\tOVER s\tPEAK\tSETTLE s\tSETTLED\tSD\tDIP\tOTHERS' PEAK\tPLANS\tMOVED\tAGAIN\tSHED\tLATE\tSERVED\tSERVED SD")
	for _, r := range rows {
		fmt.Fprintf(t, "%s", r.Name)
		for _, f := range stepColumns {
			lo, mean, hi := math.Inf(1), 0.0, math.Inf(-1)
			for _, x := range r.Results {
				v := f.valueOf(x)
				if x.OnNetwork && !f.onNetwork {
					v = math.NaN() // not available from outside
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

type stepColumn struct {
	form      string
	valueOf   func(*StepResult) float64
	onNetwork bool // also available on a running fleet
}

var stepColumns = []stepColumn{
	{"%.0f", func(r *StepResult) float64 { return r.First.OverSeconds }, true},
	{"%.2f", func(r *StepResult) float64 { return r.First.Peak }, true},
	{"%.0f", func(r *StepResult) float64 { return r.First.SettleSeconds }, true},
	{"%.2f", func(r *StepResult) float64 { return r.First.Settled }, true},
	{"%.3f", func(r *StepResult) float64 { return r.First.SD }, true},
	{"%.2f", func(r *StepResult) float64 { return r.First.Undershoot }, true},
	{"%.2f", func(r *StepResult) float64 { return r.MaxOther }, false},
	{"%.0f", func(r *StepResult) float64 { return float64(r.Plans) }, false},
	{"%.1f%%", func(r *StepResult) float64 { return 100 * r.MovedOnce }, true},
	{"%.1f%%", func(r *StepResult) float64 { return 100 * r.MovedAgain }, true},
	{"%.2f%%", func(r *StepResult) float64 { return 100 * shareOf(r.Shed, r.Sent) }, true},
	{"%.2f%%", func(r *StepResult) float64 { return 100 * shareOf(r.Late, r.Sent) }, true},
	{"%.2f", func(r *StepResult) float64 { return r.Served.Settled }, false},
	{"%.3f", func(r *StepResult) float64 { return r.Served.SD }, false},
}

func shareOf(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
