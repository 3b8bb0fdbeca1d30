package experiment

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// UtilSeries is a region's utilization, once a second: its clients' demand over its capacity.
type UtilSeries struct {
	StepAt int       // the second in which demand rose
	Util   []float64 // 1 is capacity
}

// StepMeasure is the figures of one region's series.
type StepMeasure struct {
	OverSeconds   float64 // seconds above capacity
	Peak          float64 // the highest after the step
	Settled       float64 // mean of the last half after the step
	SD            float64 // standard deviation in that half
	Undershoot    float64 // minimum below Settled on the way
	SettleSeconds float64 // seconds until it stayed near Settled
}

// settledTolerance is the deviation from the mean within which a load counts as settled.
const settledTolerance = 0.05

// MeasureStep computes the figures of a series.
func (s *UtilSeries) MeasureStep() (m StepMeasure) {
	after := s.Util[min(s.StepAt, len(s.Util)):]
	rest := after[len(after)/2:]
	if len(rest) == 0 {
		return m
	}
	sum, squares := 0.0, 0.0
	for _, u := range rest {
		sum, squares = sum+u, squares+u*u
	}
	n := float64(len(rest))
	m.Settled = sum / n
	m.SD = math.Sqrt(math.Max(0, squares/n-m.Settled*m.Settled))
	for i, u := range after {
		m.Peak = math.Max(m.Peak, u)
		m.Undershoot = math.Max(m.Undershoot, m.Settled-u)
		if u > 1 {
			m.OverSeconds++
		}
		if math.Abs(u-m.Settled) > settledTolerance {
			m.SettleSeconds = float64(i + 1)
		}
	}
	return m
}

// SmoothOver is the series as moving averages, for values counted in requests.
func (s *UtilSeries) SmoothOver(seconds int) UtilSeries {
	out := UtilSeries{StepAt: s.StepAt, Util: make([]float64, len(s.Util))}
	for i := range s.Util {
		lo, hi := max(0, i-seconds/2), min(len(s.Util), i+seconds/2+1)
		for _, u := range s.Util[lo:hi] {
			out.Util[i] += u / float64(hi-lo)
		}
	}
	return out
}

// StepTargetTTFT is the spec's default target of the time to first token for the class of a step's requests.
const StepTargetTTFT = 2 * time.Second

// StepResult is the result of a run.
type StepResult struct {
	First      StepMeasure // the first region by its resolvers' answers
	Served     StepMeasure // the same by where requests were served, over 10 s
	MaxOther   float64     // the highest load of any other region, by answers
	Plans      int         // after the step
	MovedOnce  float64     // fraction of the region's resolvers that moved after the step
	MovedAgain float64     // fraction that moved more than once
	Sent       int         // requests after the step
	Shed       int         // refused or failed
	Late       int         // first byte after the target
	BadAnswers int         // invalid DNS answers, or answers without a region
	Answers    []UtilSeries
	OnNetwork  bool // of a running fleet: figures that only the simulation has are missing
}

// StepRow is one setup with the results of its seeds.
type StepRow struct {
	Name    string
	Results []*StepResult
}

// PrintSteps writes the table: the mean of each figure over the seeds, and its spread.
func PrintSteps(w io.Writer, rows []StepRow) error {
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
	{"%.2f%%", func(r *StepResult) float64 { return 100 * stepShare(r.Shed, r.Sent) }, true},
	{"%.2f%%", func(r *StepResult) float64 { return 100 * stepShare(r.Late, r.Sent) }, true},
	{"%.2f", func(r *StepResult) float64 { return r.Served.Settled }, false},
	{"%.3f", func(r *StepResult) float64 { return r.Served.SD }, false},
}

func stepShare(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
