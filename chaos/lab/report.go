package lab

import "time"

// Report is what came of an experiment. Every number in it is finite.
type Report struct {
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	Question string        `json:"question"`
	Form     string        `json:"form"` // small or full
	Subject  string        `json:"subject"`
	Seeds    []uint64      `json:"seeds,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	WarmUp   time.Duration `json:"warm_up_ns"`
	// Passed says that every line holds. It is never set for what cannot run yet.
	Passed bool `json:"passed"`
	// Part of the runs that were made, where it is a report of what is done so far; 0 when all are.
	Part float64 `json:"part,omitempty"`
	// Needs is what the simulator cannot do yet; the experiment was then not run.
	Needs []string `json:"needs,omitempty"`
	// Command is what runs the experiment instead of the simulator.
	Command string        `json:"command,omitempty"`
	Cases   []CaseReport  `json:"cases,omitempty"`
	Lines   []Verdict     `json:"lines,omitempty"`
	Finds   []string      `json:"findings,omitempty"`
	Titles  []FigureTitle `json:"figures,omitempty"`
	// Across are the figures to be shown of all cases side by side.
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
	// Vary is what values stand for.
	Vary string `json:"vary"`
	// Knee is what the loads are parts of, where they are.
	Knee *KneeReport `json:"knee,omitempty"`
	// Warnings are what makes the case's figures doubtful.
	Warnings []string `json:"warnings,omitempty"`
	// Rows are the policies, value by value.
	Rows []Row `json:"rows,omitempty"`
	// Capacity is the greatest value that meets the SLO, by policy; nothing when it was not searched for.
	Capacity []CapacityRow `json:"capacity,omitempty"`
}

// FleetRow is one group of workers.
type FleetRow struct {
	Region  string  `json:"region"`
	Zone    string  `json:"zone"`
	Count   int     `json:"count"`
	GPU     string  `json:"gpu"`
	TP      int     `json:"tp"`
	Model   string  `json:"model"`
	KV      int     `json:"kv_tokens"`
	Prefill float64 `json:"prefill_tokens_per_s"`
	Dollars float64 `json:"dollars_per_hour"` // of all of them
	Slow    float64 `json:"slowdown,omitempty"`
}

// Row is one policy at one value, over the seeds.
type Row struct {
	Policy string `json:"policy"`
	// Value that was varied; nil where nothing was.
	Value *float64 `json:"value,omitempty"`
	// Seeds is how many the figures are of.
	Seeds int `json:"seeds"`
	// Load is what the value came to, where it is a part of a knee.
	Load    *float64          `json:"load,omitempty"`
	Figures map[string]Spread `json:"figures_by_name"`
	// Tenants and Regions are the figures of their parts.
	Tenants map[string]map[string]Spread `json:"tenants,omitempty"`
	Regions map[string]map[string]Spread `json:"regions,omitempty"`
	// TTFT is the cumulative distribution over all seeds, of answered requests, thinned to some points. It ends at the part
	// that was answered.
	TTFT []Point `json:"ttft_cdf,omitempty"`
	// Busy is each worker's busy time as a part of the run, of the first seed, most first.
	Busy []float64 `json:"busy,omitempty"`
	// Counts are those of all seeds together.
	Sent     int64            `json:"sent"`
	Answered int64            `json:"answered"`
	Refusals map[string]int64 `json:"refusals,omitempty"`
	// Limit says what keeps the policy from meeting the SLO, where it does not.
	Limit string `json:"limit,omitempty"`

	short string // the trace's end, where it came early
}

// Point of a plot.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// CapacityRow is what a search found for one policy.
type CapacityRow struct {
	Policy string `json:"policy"`
	// Seeds is how many the figure is of.
	Seeds int `json:"seeds"`
	Spread
	// Probes are what was tried, of all seeds: the value and the goodput there, by value.
	Probes []Probe `json:"probes"`
	// Limit says what kept the next value from meeting the SLO.
	Limit string `json:"limit,omitempty"`

	bar   float64 // attainment that was asked for there
	short string  // the trace's end, where it came early
}

// Probe is one try of a search.
type Probe struct {
	Value      float64 `json:"value"`
	Goodput    float64 `json:"goodput"`
	Attainment float64 `json:"attainment"`
}

// Verdict is what came of a line, in one of the places that it speaks of.
type Verdict struct {
	Line  string   `json:"line"`
	Case  string   `json:"case,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Holds bool     `json:"holds"`
	// Left and Right are the two sides' figures; nil where one has none.
	Left  *float64 `json:"left,omitempty"`
	Right *float64 `json:"right,omitempty"`
	// Figures is the comparison in words, or why there is none.
	Figures string `json:"figures"`
	// Open is what the experiment's file says of why the line does not hold.
	Open string `json:"open,omitempty"`
}
