package experiment

import (
	"fmt"
	"time"
)

// Report is the result of an experiment. Every number in it is finite.
type Report struct {
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	Question string        `json:"question"`
	Form     string        `json:"form"` // small or full
	Subject  string        `json:"subject"`
	Seeds    []uint64      `json:"seeds,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	WarmUp   time.Duration `json:"warm_up_ns"`
	// Passed reports that every assertion holds. It is never set for an experiment that cannot run yet.
	Passed bool `json:"passed"`
	// DoneShare is the fraction of the runs that are done, in a partial report; 0 when all are.
	DoneShare float64 `json:"part,omitempty"`
	// Needs are the missing features because of which the experiment was not run.
	Needs []string `json:"needs,omitempty"`
	// Command runs the experiment instead of the simulator.
	Command string            `json:"command,omitempty"`
	Cases   []CaseReport      `json:"cases,omitempty"`
	Lines   []AssertionResult `json:"lines,omitempty"`
	Finds   []string          `json:"findings,omitempty"`
	Titles  []FigureTitle     `json:"figures,omitempty"`
	// Across are the figures to be shown for all cases together.
	Across []string `json:"across,omitempty"`
}

// FigureTitle explains a figure's name.
type FigureTitle struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
}

// CaseReport is one case.
type CaseReport struct {
	Name     string     `json:"name,omitempty"`
	Title    string     `json:"title,omitempty"`
	Fleet    []FleetRow `json:"fleet"`
	Workload string     `json:"workload"`
	SLO      string     `json:"slo"`
	Stale    string     `json:"staleness"`
	// Vary is the meaning of values.
	Vary string `json:"vary"`
	// Knee is what the loads are fractions of, if set.
	Knee *KneeReport `json:"knee,omitempty"`
	// Warnings are reasons to doubt the case's figures.
	Warnings []string `json:"warnings,omitempty"`
	// Rows are the policies, value by value.
	Rows []PolicyRow `json:"rows,omitempty"`
	// Capacity is the greatest value that meets the SLO, by policy; empty without a search.
	Capacity []CapacityRow `json:"capacity,omitempty"`
}

// FleetRow is one group of workers.
type FleetRow struct {
	Region      string  `json:"region"`
	Zone        string  `json:"zone"`
	Count       int     `json:"count"`
	GPU         string  `json:"gpu"`
	TP          int     `json:"tp"`
	Model       string  `json:"model"`
	KVTokens    int     `json:"kv_tokens"`
	PrefillRate float64 `json:"prefill_tokens_per_s"`
	Dollars     float64 `json:"dollars_per_hour"` // of all of them
	Slowdown    float64 `json:"slowdown,omitempty"`
}

// PolicyRow is one policy at one value, over the seeds.
type PolicyRow struct {
	Policy string `json:"policy"`
	// Value that was varied; nil if nothing was.
	Value *float64 `json:"value,omitempty"`
	// Seeds is the number of seeds of the figures.
	Seeds int `json:"seeds"`
	// Load is the absolute load, if the value is a fraction of a knee.
	Load    *float64              `json:"load,omitempty"`
	Figures map[string]SeedSpread `json:"figures_by_name"`
	// Tenants and Regions are the figures of their parts.
	Tenants map[string]map[string]SeedSpread `json:"tenants,omitempty"`
	Regions map[string]map[string]SeedSpread `json:"regions,omitempty"`
	// TTFT is the cumulative distribution over all seeds, of answered requests, reduced to some points. It ends at
	// the fraction that was answered.
	TTFT []Point `json:"ttft_cdf,omitempty"`
	// WorkerBusy is each worker's busy time as a fraction of the run, of the first seed, in descending order.
	WorkerBusy []float64 `json:"busy,omitempty"`
	// Counts are the sums over all seeds.
	Sent     int64            `json:"sent"`
	Answered int64            `json:"answered"`
	Refusals map[string]int64 `json:"refusals,omitempty"`
	// Limit is the reason why the policy misses the SLO, if it does.
	Limit string `json:"limit,omitempty"`

	earlyEnd string // the end of a trace that ended early
}

// Point is a point of a plot.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// CapacityRow is the result of a search for one policy.
type CapacityRow struct {
	Policy string `json:"policy"`
	// Seeds is the number of seeds of the figure.
	Seeds int `json:"seeds"`
	SeedSpread
	// Probes are the values tried, of all seeds, with their goodput, by value.
	Probes []SearchProbe `json:"probes"`
	// Limit is the reason why the next value missed the SLO.
	Limit string `json:"limit,omitempty"`

	required float64 // attainment required there
	earlyEnd string  // the end of a trace that ended early
}

// SearchProbe is one try of a search.
type SearchProbe struct {
	Value      float64 `json:"value"`
	Goodput    float64 `json:"goodput"`
	Attainment float64 `json:"attainment"`
}

// AssertionResult is the result of an assertion at one of its places.
type AssertionResult struct {
	Line  string   `json:"line"`
	Case  string   `json:"case,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Holds bool     `json:"holds"`
	// Left and Right are the two sides' figures; nil if one has none.
	Left  *float64 `json:"left,omitempty"`
	Right *float64 `json:"right,omitempty"`
	// Figures is the comparison as text, or why there is none.
	Figures string `json:"figures"`
	// KnownReason is the known reason of a failure, from the experiment's file.
	KnownReason string `json:"open,omitempty"`
}

// loadAt is the load that a value stands for.
func (k *KneeReport) loadAt(value float64) float64 {
	if k == nil || k.Load > 0 {
		return value
	}
	return value * k.Value
}

// describeKnee describes what the loads are fractions of.
func (c *CaseReport) describeKnee() string {
	k := c.Knee
	if k == nil {
		return ""
	}
	where := ""
	if k.Case != "" {
		where = " in the case " + k.Case
	}
	vary := c.Vary
	if k.Load > 0 {
		vary = "rate"
	}
	what := FormatFigure(k.Value, capacityUnit(vary))
	if vary != "rate" {
		what = formatThreeDigits(k.Value) + " " + vary
	}
	knee := fmt.Sprintf("%s, the most that %s sustains%s (%s of requests within the SLO)", what, k.Policy, where, FormatFigure(k.Attainment, "%"))
	if k.Load > 0 {
		return fmt.Sprintf("%s times %s", formatPlain(k.Load), knee)
	}
	return "1 is " + knee
}

// formatLoad formats the load for a table.
func (c *CaseReport) formatLoad(r *PolicyRow) string {
	if r.Load == nil {
		return formatPlain(*r.Value)
	}
	at := *r.Load
	if c.Vary != "rate" {
		at = float64(roundToCount(at))
	}
	return fmt.Sprintf("%s (%s)", formatThreeDigits(at), formatPlain(*r.Value))
}
