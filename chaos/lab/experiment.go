package lab

import (
	_ "embed" // the source whose comments explain the keys
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/internal/config"
)

// Experiment is a question to the simulator, as its file says it.
type Experiment struct {
	// ID names the experiment on command lines, such as E5.
	ID string `yaml:"id"`
	// Title says in a few words what it is about.
	Title string `yaml:"title"`
	// Question is what is asked, in plain words.
	Question string `yaml:"question"`
	// Needs lists what the simulator cannot do yet and the experiment cannot do without. While it lists anything, the
	// experiment is not run and does not pass.
	Needs []string `yaml:"needs"`
	// Command runs the experiment where it is not the simulator that answers it, such as a test of the engine's model.
	Command string `yaml:"command"`
	// Fleet is who serves: groups of equal workers, each in a zone of a region.
	Fleet []Group `yaml:"fleet"`
	// Workload is what is asked. Its regions are those of the fleet where it names none.
	Workload load.Workload `yaml:"workload"`
	// Cases are variations, each run by itself. Default: one, as the file says it.
	Cases []Case `yaml:"cases"`
	// Policies by which workers are chosen, as in the spec's routing.policy; "baselines" stands for all that the catalogue
	// compares with.
	Policies []string `yaml:"policies"`
	// Subject is the policy that is on trial; the others are what it is compared with. Default predictive.
	Subject string `yaml:"subject" default:"predictive"`
	// Vary is what values stand for: rate (requests per second), sessions, clients (of each region), workers (of each group), or
	// thin (one session and one worker of so many are kept).
	Vary string `yaml:"vary" default:"rate"`
	// Values are run one after the other. Default: one run, with what workload and fleet say.
	Values []float64 `yaml:"values"`
	// Knee has values stand for parts of what one policy sustains.
	Knee Knee `yaml:"knee"`
	// Capacity looks for the greatest value that still meets the SLO.
	Capacity Capacity `yaml:"capacity"`
	// Duration is how long requests arrive.
	Duration time.Duration `yaml:"duration" default:"5m"`
	// WarmUp is how much of the beginning is not measured.
	WarmUp time.Duration `yaml:"warm_up"`
	// Grace is how long after that answers are waited for; who has none then counts as missed. Default 5m.
	Grace time.Duration `yaml:"grace" default:"5m"`
	// Seeds is how many runs differ in nothing but chance.
	Seeds int `yaml:"seeds" default:"10"`
	// Screen is how many seeds every policy is played with. Those that lines name, and the best three of each figure whose best
	// or worst a line asks for, are played with all seeds. 0: every policy is.
	Screen int `yaml:"screen"`
	// Takes is about how long the full form computes on one core, as it was measured last.
	Takes time.Duration `yaml:"takes"`
	// SLO is what counts as good.
	SLO SLO `yaml:"slo"`
	// Staleness is how old what deciders know may be.
	Staleness Staleness `yaml:"staleness"`
	// EstimateError is how far deciders' estimates of a prompt's length are off: 0.17 makes each up to 17 % too long or too
	// short, by chance. Zones estimate tokens from bytes until an engine has counted them.
	EstimateError float64 `yaml:"estimate_error"`
	// Limits says whether requests name their output limit: "none" (routers must guess) or "exact" (an oracle of lengths).
	Limits string `yaml:"limits" default:"none"`
	// Places are where regions are. A fleet of several regions needs them.
	Places []Place `yaml:"places"`
	// Network between clients and regions, where there are several or steering is on.
	Network Network `yaml:"network"`
	// Tiers is how many instances of each tier there are.
	Tiers Tiers `yaml:"tiers"`
	// Steering has clients come by DNS answers of the global tier. Without it they come to their own region's gateway.
	Steering bool `yaml:"steering"`
	// Tenants share the requests. Default: everybody is one.
	Tenants []Tenant `yaml:"tenants"`
	// Meter adds what the simulator itself took, in figures that begin with sim_, and runs one thing at a time.
	Meter bool `yaml:"meter"`
	// Across are figures that are shown of all cases side by side, such as ttft_p99.
	Across []string `yaml:"across"`
	// Pass are the lines that must hold.
	Pass []Line `yaml:"pass"`
	// Small is what is different in the small form, which takes seconds.
	Small Small `yaml:"small"`
}

// Group is so many equal workers of one zone.
type Group struct {
	Region string `yaml:"region" default:"here"` // where they are; "each" is such a group in every one of places
	Zone   string `yaml:"zone" default:"a"`      // and in which failure domain
	// Count of workers.
	Count int `yaml:"count" default:"1"`
	// GPU is the type, such as H100.
	GPU string `yaml:"gpu"`
	// Model they serve.
	Model string `yaml:"model"`
	// TP is how many GPUs work as one. 0: the fewest that hold the model.
	TP int `yaml:"tp"`
	// Slowdown makes steps take so many times as long, without the router being told.
	Slowdown float64 `yaml:"slowdown" default:"1"`
	// CacheTokens replaces the KV cache's size, in tokens. 0: what fits beside the weights.
	CacheTokens int `yaml:"cache_tokens"`
	// Window replaces the longest prompt and answer together that the model takes, in tokens, where its engine is told to stretch
	// it. 0: the model's own.
	Window int `yaml:"window"`
}

// Case is a variation of the experiment. What it leaves out is the experiment's.
type Case struct {
	// Name stands in pass lines.
	Name string `yaml:"name"`
	// Title says what is different.
	Title     string         `yaml:"title"`
	Fleet     []Group        `yaml:"fleet"`     // instead of the experiment's
	Workload  *load.Workload `yaml:"workload"`  // instead of the experiment's
	Vary      string         `yaml:"vary"`      // instead of the experiment's
	Values    []float64      `yaml:"values"`    // instead of the experiment's
	Knee      *Knee          `yaml:"knee"`      // instead of the experiment's
	Capacity  *Capacity      `yaml:"capacity"`  // instead of the experiment's
	Network   *Network       `yaml:"network"`   // instead of the experiment's
	Tiers     *Tiers         `yaml:"tiers"`     // instead of the experiment's
	SLO       *SLO           `yaml:"slo"`       // instead of the experiment's
	Staleness *Staleness     `yaml:"staleness"` // instead of the experiment's
	// EstimateError is used instead of the experiment's.
	EstimateError *float64 `yaml:"estimate_error"`
	Faults        []Fault  `yaml:"faults"`  // what breaks
	Without       []string `yaml:"without"` // tenants that stay away
	// Apart keeps regions from spilling to each other.
	Apart bool `yaml:"apart"`
	// Anonymous keeps from the router whose requests are and of what class, so that they wait in the order of arrival.
	Anonymous bool `yaml:"anonymous"`
	// Threshold refuses what arrives while so many times the requests are under way as at the knee, before the router
	// decides anything: a hard limit. 0 is none.
	Threshold float64 `yaml:"threshold"`
	// Limits is instead of the experiment's.
	Limits string `yaml:"limits"`
	// Values and Capacity in the small form.
	Small CaseSmall `yaml:"small"`

	most int // requests under way, of the threshold
}

// CaseSmall is what is different in a case's small form.
type CaseSmall struct {
	Values   []float64 `yaml:"values"`   // instead of the case's
	Capacity *Capacity `yaml:"capacity"` // instead of the case's
	Skip     bool      `yaml:"skip"`     // leaves the case out
}

// Capacity is a search for the greatest value that meets the SLO, by halving.
type Capacity struct {
	// From is a value that should meet it.
	From float64 `yaml:"from"`
	// To is a value that should not. Both 0: no search.
	To float64 `yaml:"to"`
	// Attainment is the least part of requests that must meet the SLO.
	Attainment float64 `yaml:"attainment" default:"0.99"`
	// Of is what attainment is a part of: "all" requests, or those that are "possible": that the fleet's fastest worker would
	// meet while half busy, so that each takes twice its time alone, with whatever was asked before still in its cache.
	Of string `yaml:"of" default:"all"`
	// Within is how near the answer must be, as a part of it.
	Within float64 `yaml:"within" default:"0.05"`
}

func (c *Capacity) searched() bool { return c.To > 0 }

// SLO is what counts as good. A request that was refused or broke off never is. 0: no bound.
type SLO struct {
	TTFT time.Duration `yaml:"ttft"` // time to first token
	TPOT time.Duration `yaml:"tpot"` // mean time between the tokens of an answer
	E2E  time.Duration `yaml:"e2e"`  // time to last token
	Told bool          `yaml:"told"` // clients name ttft and tpot in their requests' heads; otherwise nobody tells the router
}

// Staleness is how old what deciders know may be.
type Staleness struct {
	// Scrape is the interval between looks at a worker. Default: production's.
	Scrape time.Duration `yaml:"scrape"`
	// Delay is how old what a look shows is.
	Delay time.Duration `yaml:"delay"`
}

// Line is one statement over the results that must hold, such as goodput(predictive) >= 0.98 * best(goodput).
type Line struct {
	// Line is the statement. What it does not name holds of each: of every case, and of every value.
	Line string `yaml:"line"`
	// Needs says what the simulator cannot do yet and the line cannot do without. It is then not judged and does not hold.
	Needs string `yaml:"needs"`
	// Open says why it does not hold yet, where that is known.
	Open string `yaml:"open"`
	// Guard has the tests of the small forms fail when the line does not hold: for what holds by a wide margin.
	Guard bool `yaml:"guard"`
	// Full leaves the line out of the small form, which is too small for it.
	Full bool `yaml:"full"`
}

// Small is what is different in the small form.
type Small struct {
	Duration time.Duration `yaml:"duration"` // instead of the experiment's
	WarmUp   time.Duration `yaml:"warm_up"`  // instead of the experiment's
	Seeds    int           `yaml:"seeds"`    // instead of the experiment's; default 1
	Policies []string      `yaml:"policies"` // instead of the experiment's
	Places   int           `yaml:"places"`   // keeps the first so many, and what is in them; 0 keeps all
	Values   []float64     `yaml:"values"`   // instead of the experiment's
	Capacity *Capacity     `yaml:"capacity"` // instead of the experiment's
}

//go:embed experiment.go
var source string

//go:embed world.go
var worldSource string

//go:embed knee.go
var kneeSource string

// Describe prints every key of an experiment's file: its type, its default and what it means. The meanings are the comments
// of the very structs that files are read into.
func Describe(w io.Writer) error {
	return config.DescribeStruct(w, reflect.TypeFor[Experiment](), []string{source, worldSource, tiersSource, kneeSource, load.WorkloadSource()})
}

// Reduce turns the experiment into its small form.
func (e *Experiment) Reduce() {
	s := &e.Small
	if s.Duration > 0 {
		e.Duration, e.WarmUp = s.Duration, s.WarmUp
	}
	e.Seeds, e.Screen = max(s.Seeds, 1), 0
	if len(s.Policies) > 0 {
		e.Policies = s.Policies
	}
	if len(s.Values) > 0 {
		e.Values = s.Values
	}
	if s.Capacity != nil {
		e.Capacity = *s.Capacity
	}
	e.shrink()
	e.Knee.reduce()
	var cases []Case
	for _, c := range e.Cases {
		c.Knee.reduce()
		if c.Small.Skip {
			continue
		}
		if len(c.Small.Values) > 0 {
			c.Values = c.Small.Values
		}
		if c.Small.Capacity != nil {
			c.Capacity = c.Small.Capacity
		}
		cases = append(cases, c)
	}
	if len(e.Cases) > 0 {
		e.Cases = cases
	}
	var lines []Line
	for _, l := range e.Pass {
		if !l.Full {
			lines = append(lines, l)
		}
	}
	e.Pass = lines
}

// expanded are the cases with what they leave out filled in, at least one.
func (e *Experiment) expanded() []Case {
	cases := e.Cases
	if len(cases) == 0 {
		cases = []Case{{}}
	}
	out := make([]Case, len(cases))
	for i, c := range cases {
		if len(c.Fleet) == 0 {
			c.Fleet = e.Fleet
		}
		if c.Workload == nil {
			c.Workload = &e.Workload
		}
		if c.Vary == "" {
			c.Vary = e.Vary
		}
		if len(c.Values) == 0 {
			c.Values = e.Values
		}
		if c.Capacity == nil {
			c.Capacity = &e.Capacity
		}
		if c.Knee == nil {
			if c.Knee = &e.Knee; c.Knee.Load == 0 && len(c.Values) == 0 && c.Capacity.searched() {
				c.Knee = &Knee{} // a case that is searched has no values that could be parts of it
			}
		}
		if c.Network == nil {
			c.Network = &e.Network
		}
		if c.Tiers == nil {
			c.Tiers = &e.Tiers
		}
		if c.SLO == nil {
			c.SLO = &e.SLO
		}
		if c.Limits == "" {
			c.Limits = e.Limits
		}
		if c.EstimateError == nil {
			c.EstimateError = &e.EstimateError
		}
		if c.Staleness == nil {
			c.Staleness = &e.Staleness
		}
		out[i] = c
	}
	return out
}

func (s *SLO) sim() sim.SLO { return sim.SLO{TTFT: s.TTFT, TPOT: s.TPOT, E2E: s.E2E} }

// Only runs other policies than the file says. Lines that speak of one that is then not run are not judged away: they say
// so and do not hold. "all" stands for every policy there is, "baselines" for those of the catalogue.
func (e *Experiment) Only(names []string) error {
	if len(names) == 1 && names[0] == "all" {
		names = sim.Policies()
	}
	names = spelled(names)
	p := &problems{}
	checkPolicies(p, "$", names)
	if len(p.list) > 0 {
		return fmt.Errorf("--policies: %s\nhint: %s", p.list[0].Reason, p.list[0].Hint)
	}
	e.Policies = names
	return nil
}
