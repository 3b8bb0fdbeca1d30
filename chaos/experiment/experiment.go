package experiment

import (
	_ "embed" // the source whose comments explain the keys
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/internal/config"
)

// Experiment is a question to the simulator, as in its file.
type Experiment struct {
	// Warnings name what the file uses and the next release removes.
	Warnings []string `yaml:"-"`
	// ID names the experiment on command lines, such as E5.
	ID string `yaml:"id"`
	// Title is a short description.
	Title string `yaml:"title"`
	// Question that the experiment answers, in plain words.
	Question string `yaml:"question"`
	// Needs lists required features that the simulator does not have yet. If it is not empty, the experiment is not
	// run and does not pass.
	Needs []string `yaml:"needs"`
	// Command runs the experiment outside the simulator, such as a test of the engine's model.
	Command string `yaml:"command"`
	// Fleet of workers: groups of equal workers, each in a zone of a region.
	Fleet []WorkerGroup `yaml:"fleet"`
	// Workload of requests. Its regions are those of the fleet if it names none.
	Workload load.Workload `yaml:"workload"`
	// Cases are variations, each run separately. Default: one, as in the file.
	Cases []Case `yaml:"cases"`
	// Policies that choose workers, as in the spec's routing.policy; "baselines" stands for all baselines of the
	// catalogue.
	Policies []string `yaml:"policies"`
	// Subject is the policy under test; the others are its comparison. Default predictive.
	Subject string `yaml:"subject" default:"predictive"`
	// Vary is the meaning of values: rate (requests per second), sessions, clients (of each region), workers (of each
	// group), or thin (one session and one worker of so many are kept).
	Vary string `yaml:"vary" default:"rate"`
	// Values are run one after the other. Default: one run, as workload and fleet state.
	Values []float64 `yaml:"values"`
	// Knee makes values fractions of what one policy sustains.
	Knee Knee `yaml:"knee"`
	// Capacity searches for the greatest value that still meets the SLO.
	Capacity CapacitySearch `yaml:"capacity"`
	// Duration is how long requests arrive.
	Duration time.Duration `yaml:"duration" default:"5m"`
	// WarmUp is the initial time that is not measured.
	WarmUp time.Duration `yaml:"warm_up"`
	// Grace is how long after duration answers are waited for; requests without an answer then count as missed.
	// Default 5m.
	Grace time.Duration `yaml:"grace" default:"5m"`
	// Seeds is the number of runs that differ only in randomness.
	Seeds int `yaml:"seeds" default:"10"`
	// Screen is the number of seeds that every policy is run with. Policies that assertions name, and the best three of each
	// figure whose best or worst an assertion uses, are run with all seeds. 0: every policy is.
	Screen int `yaml:"screen"`
	// Takes is the last measured computing time of the full form on one core.
	Takes time.Duration `yaml:"takes"`
	// SLO for goodput.
	SLO SLO `yaml:"slo"`
	// Staleness of the deciders' information.
	Staleness Staleness `yaml:"staleness"`
	// EstimateError is the error of deciders' estimates of prompt lengths: 0.17 makes each up to 17 % too long or too
	// short, at random. Zones estimate tokens from bytes until an engine has counted them.
	EstimateError float64 `yaml:"estimate_error"`
	// Limits states whether requests name their output limit: "none" (routers must estimate) or "exact" (an oracle of
	// lengths).
	Limits string `yaml:"limits" default:"none"`
	// Places are the locations of regions. A fleet of several regions needs them.
	Places []RegionLocation `yaml:"places"`
	// Network between clients and regions, if there are several or steering is on.
	Network NetworkModel `yaml:"network"`
	// Tiers is the number of instances of each tier.
	Tiers TierInstances `yaml:"tiers"`
	// Steering makes clients use DNS answers of the global tier. Otherwise they use their own region's gateway.
	Steering bool `yaml:"steering"`
	// Tenants share the requests. Default: one tenant.
	Tenants []TenantShare `yaml:"tenants"`
	// Meter adds the cost of the simulator itself, in figures that begin with sim_, and runs one job at a time.
	Meter bool `yaml:"meter"`
	// Across are figures that are shown for all cases together, such as ttft_p99.
	Across []string `yaml:"across"`
	// Pass lists the assertions.
	Pass []Assertion `yaml:"pass"`
	// Small is what differs in the small form, which takes seconds.
	Small SmallForm `yaml:"small"`
}

// WorkerGroup is a number of equal workers of one zone.
type WorkerGroup struct {
	Region string `yaml:"region" default:"here"` // region of the workers; "each" is such a group in every one of places
	Zone   string `yaml:"zone" default:"a"`      // failure domain
	// Count of workers.
	Count int `yaml:"count" default:"1"`
	// GPU is the type, such as H100.
	GPU string `yaml:"gpu"`
	// Model that they serve.
	Model string `yaml:"model"`
	// TP is the number of GPUs in tensor parallelism. 0: the fewest that hold the model.
	TP int `yaml:"tp"`
	// Slowdown is a factor of step times that the router is not configured with.
	Slowdown float64 `yaml:"slowdown" default:"1"`
	// CacheTokens replaces the KV cache's size, in tokens. 0: what fits next to the weights.
	CacheTokens int `yaml:"cache_tokens"`
	// Window replaces the model's maximum of prompt plus answer, in tokens, for an engine that is configured to
	// extend it. 0: the model's own.
	Window int `yaml:"window"`
}

// Case is a variation of the experiment. Fields that are not set are those of the experiment.
type Case struct {
	// Name is used in assertions.
	Name string `yaml:"name"`
	// Title describes the difference.
	Title     string          `yaml:"title"`
	Fleet     []WorkerGroup   `yaml:"fleet"`     // instead of the experiment's
	Workload  *load.Workload  `yaml:"workload"`  // instead of the experiment's
	Vary      string          `yaml:"vary"`      // instead of the experiment's
	Values    []float64       `yaml:"values"`    // instead of the experiment's
	Knee      *Knee           `yaml:"knee"`      // instead of the experiment's
	Capacity  *CapacitySearch `yaml:"capacity"`  // instead of the experiment's
	Network   *NetworkModel   `yaml:"network"`   // instead of the experiment's
	Tiers     *TierInstances  `yaml:"tiers"`     // instead of the experiment's
	SLO       *SLO            `yaml:"slo"`       // instead of the experiment's
	Staleness *Staleness      `yaml:"staleness"` // instead of the experiment's
	// EstimateError is used instead of the experiment's.
	EstimateError *float64    `yaml:"estimate_error"`
	Faults        []FaultSpec `yaml:"faults"`  // faults to inject
	Without       []string    `yaml:"without"` // tenants that send nothing
	// Apart keeps regions from spilling to each other.
	Apart bool `yaml:"apart"`
	// Anonymous hides tenant and class of requests from the router, so that they wait in the order of arrival.
	Anonymous bool `yaml:"anonymous"`
	// Threshold refuses arrivals while so many times the requests of the knee are in flight, before the router
	// decides anything: a hard limit. 0 is none.
	Threshold float64 `yaml:"threshold"`
	// Limits is used instead of the experiment's.
	Limits string `yaml:"limits"`
	// Small replaces values and capacity in the small form.
	Small SmallCase `yaml:"small"`

	maxUnderWay int // requests in flight, by the threshold
}

// SmallCase is what differs in a case's small form.
type SmallCase struct {
	Values   []float64       `yaml:"values"`   // instead of the case's
	Capacity *CapacitySearch `yaml:"capacity"` // instead of the case's
	Skip     bool            `yaml:"skip"`     // skips the case
}

// CapacitySearch is a search for the greatest value that meets the SLO, by bisection.
type CapacitySearch struct {
	// From is a value that should meet it.
	From float64 `yaml:"from"`
	// To is a value that should not. Both 0: no search.
	To float64 `yaml:"to"`
	// Attainment is the minimum fraction of requests that must meet the SLO.
	Attainment float64 `yaml:"attainment" default:"0.99"`
	// Of is what attainment is a fraction of: "all" requests, or the "possible" ones, which the fleet's fastest
	// worker would meet while half busy, so that each takes twice its time alone, with all earlier prompts still in
	// its cache.
	Of string `yaml:"of" default:"all"`
	// Within is the relative precision of the result.
	Within float64 `yaml:"within" default:"0.05"`
}

// SLO is the condition for goodput. A request that was refused or cut never meets it. 0: no bound.
type SLO struct {
	TTFT        time.Duration `yaml:"ttft"` // time to first token
	TPOT        time.Duration `yaml:"tpot"` // mean time between the tokens of an answer
	E2E         time.Duration `yaml:"e2e"`  // time to last token
	Send        bool          `yaml:"send"` // clients send ttft and tpot as request headers; otherwise the router does not know them
	EarlierSend bool          `yaml:"told"` // earlier name of send, removed in the next release
}

// Staleness is the age of the deciders' information.
type Staleness struct {
	// Scrape is the interval of scrapes of a worker. Default: production's.
	Scrape time.Duration `yaml:"scrape"`
	// Delay is the age of a reading when it arrives.
	Delay time.Duration `yaml:"delay"`
}

// Assertion is one statement over the results that must hold, such as goodput(predictive) >= 0.98 * best(goodput).
type Assertion struct {
	// Line is the statement. It must hold for each case and each value that it does not name.
	Line string `yaml:"line"`
	// Needs lists a required feature that the simulator does not have yet. The assertion is then not judged and does
	// not hold.
	Needs string `yaml:"needs"`
	// Open is the known reason why it does not hold yet.
	Open string `yaml:"open"`
	// Guard makes the tests of the small forms fail when the assertion does not hold: for those with a wide margin.
	Guard bool `yaml:"guard"`
	// Full skips the assertion in the small form, which is too small for it.
	Full bool `yaml:"full"`
}

// SmallForm is what differs in the small form.
type SmallForm struct {
	Duration time.Duration   `yaml:"duration"` // instead of the experiment's
	WarmUp   time.Duration   `yaml:"warm_up"`  // instead of the experiment's
	Seeds    int             `yaml:"seeds"`    // instead of the experiment's; default 1
	Policies []string        `yaml:"policies"` // instead of the experiment's
	Places   int             `yaml:"places"`   // keeps only the first places, and the workers there; 0 keeps all
	Values   []float64       `yaml:"values"`   // instead of the experiment's
	Capacity *CapacitySearch `yaml:"capacity"` // instead of the experiment's
}

//go:embed experiment.go
var experimentSource string

//go:embed world.go
var worldSource string

//go:embed knee.go
var kneeSource string

// DescribeKeys prints every key of an experiment's file with its type, default and meaning. The meanings are the
// comments of the structs that files are decoded into.
func DescribeKeys(w io.Writer) error {
	return config.DescribeStruct(w, reflect.TypeFor[Experiment](), []string{experimentSource, worldSource, tiersSource, kneeSource, load.WorkloadSource()})
}

// UseSmallForm changes the experiment to its small form.
func (e *Experiment) UseSmallForm() {
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
	e.keepFirstRegions()
	e.Knee.useSmallSearch()
	var cases []Case
	for _, c := range e.Cases {
		c.Knee.useSmallSearch()
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
	var lines []Assertion
	for _, l := range e.Pass {
		if !l.Full {
			lines = append(lines, l)
		}
	}
	e.Pass = lines
}

// expandCases returns the cases with all fields filled in, at least one.
func (e *Experiment) expandCases() []Case {
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
			if c.Knee = &e.Knee; c.Knee.Load == 0 && len(c.Values) == 0 && c.Capacity.isWanted() {
				c.Knee = &Knee{} // a case with a search has no values that could be fractions of it
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

// UsePolicies runs other policies than the file. Assertions about a policy that is then not run stay and do not hold.
// "all" stands for every policy, "baselines" for those of the catalogue.
func (e *Experiment) UsePolicies(names []string) error {
	if len(names) == 1 && names[0] == "all" {
		names = sim.PolicyNames()
	}
	names = expandBaselines(names)
	p := &problemList{}
	checkPolicies(p, "$", names)
	if len(p.list) > 0 {
		return fmt.Errorf("--policies: %s\nhint: %s", p.list[0].Reason, p.list[0].Hint)
	}
	e.Policies = names
	return nil
}

// locationOf is the location of a region.
func (e *Experiment) locationOf(region string) (p RegionLocation) {
	if i := slices.IndexFunc(e.Places, func(p RegionLocation) bool { return p.Name == region }); i >= 0 {
		return e.Places[i]
	}
	return p
}

// baselinesName stands for all baselines of the catalogue in a list of policies.
const baselinesName = "baselines"

// baselines are the policies of the catalogue's comparisons: round robin, two at random, least requests, least queue,
// weighted, session hash with bounded loads, prefix hash with bounded loads, the rules of other systems among a
// zone's workers, and those of other systems that replace all of Spillway's tiers.
var baselines = []string{
	"round_robin", "power_of_two", "least_connections", "least_queue", "weighted_least_connections", "consistent_hash", "prefix_affinity",
	"cache_aware", "overlap_cost", "score_blend", "sticky_until_saturated", "lmetric", "prequal",
	"skywalker", "gorgo_priced", "prequal_pool",
}

// expandBaselines replaces baselinesName by the baselines, each policy once.
func expandBaselines(names []string) []string {
	at := slices.Index(names, baselinesName)
	if at < 0 {
		return names
	}
	out := slices.Clone(names[:at])
	for _, b := range baselines {
		if !slices.Contains(names, b) {
			out = append(out, b)
		}
	}
	return append(out, names[at+1:]...)
}

// everyRegion as a group's region stands for each of the experiment's places.
const everyRegion = "each"

// expandRegions puts a group with everyRegion into every place, in their order.
func (e *Experiment) expandRegions(fleet []WorkerGroup) []WorkerGroup {
	if !slices.ContainsFunc(fleet, func(g WorkerGroup) bool { return g.Region == everyRegion }) {
		return fleet
	}
	var out []WorkerGroup
	for _, g := range fleet {
		if g.Region != everyRegion {
			out = append(out, g)
		}
	}
	for i := range e.Places {
		for _, g := range fleet {
			if g.Region == everyRegion {
				g.Region = e.Places[i].Name
				out = append(out, g)
			}
		}
	}
	return out
}

// keepFirstRegions keeps the first places, for the small form.
func (e *Experiment) keepFirstRegions() {
	n := e.Small.Places
	if n == 0 || n >= len(e.Places) {
		return
	}
	e.Places = e.Places[:n]
	kept := func(fleet []WorkerGroup) []WorkerGroup {
		return slices.DeleteFunc(slices.Clone(fleet), func(g WorkerGroup) bool {
			return !slices.ContainsFunc(e.Places, func(p RegionLocation) bool { return p.Name == g.Region })
		})
	}
	e.Fleet = kept(e.Fleet)
	for i := range e.Cases {
		e.Cases[i].Fleet = kept(e.Cases[i].Fleet)
	}
}
