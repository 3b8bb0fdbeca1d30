package experiment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Bounds of one experiment.
const (
	maxCases      = 50
	maxGroups     = 1000
	maxPolicies   = 40
	maxValues     = 100
	maxSeeds      = 1000
	maxAssertions = 100
	maxDuration   = 30 * 24 * time.Hour
)

// DecodeExperiment reads an experiment's file: strictly, defaults applied, validated. name is used in messages. An
// error is always a *strict.Error that lists every mistake by line.
func DecodeExperiment(name string, text []byte) (*Experiment, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	e := &Experiment{}
	doc.Decode(e)
	e.adoptEarlierNames()
	e.applyDefaults()
	doc.ReportProblems(e.findProblems())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return e, nil
}

// applyDefaults sets defaults that depend on other keys.
func (e *Experiment) applyDefaults() {
	e.Policies, e.Small.Policies = expandBaselines(e.Policies), expandBaselines(e.Small.Policies)
	e.Fleet = e.expandRegions(e.Fleet)
	for i := range e.Cases {
		e.Cases[i].Fleet = e.expandRegions(e.Cases[i].Fleet)
	}
	for i := range e.Cases {
		if c := &e.Cases[i]; c.Workload != nil && c.Workload.Traces == "" {
			c.Workload.Traces = e.Workload.Traces
		}
	}
}

// problemList collects mistakes.
type problemList struct{ list []strict.Problem }

func (p *problemList) addProblem(path, reason, hint string, needs ...string) {
	p.list = append(p.list, strict.Problem{Path: path, Reason: reason, Hint: hint, DependsOn: strings.Join(needs, "")})
}

// findProblems returns every mistake.
func (e *Experiment) findProblems() []strict.Problem {
	p := &problemList{}
	if e.ID == "" || len(e.ID) > 32 || strings.ContainsFunc(e.ID, func(r rune) bool { return !isWordRune(r) && r != '-' }) {
		p.addProblem("$.id", fmt.Sprintf("id %q is not a valid name", e.ID), "write letters, digits and hyphens, 32 at most, such as E5")
	}
	if e.Title == "" {
		p.addProblem("$.title", "the experiment has no title", "write title: and what it compares, in a few words")
	}
	if len(e.Pass) == 0 {
		p.addProblem("$.pass", "the experiment has no assertion under pass", "write what must hold, such as - line: goodput(predictive) >= 0.98 * best(goodput)")
	}
	if len(e.Needs) > 0 || e.Command != "" {
		return p.list // it is not run: its assertions are plain text
	}
	e.checkRun(p)
	e.checkCases(p)
	e.checkTenantsAndPlaces(p)
	e.checkAssertions(p)
	for i, name := range e.Across {
		if m, ok := findMetric(name); !ok || m.name == capacityName {
			p.addProblem(fmt.Sprintf("$.across[%d]", i), fmt.Sprintf("unknown figure %q", name), strict.SuggestName(name, metricNames()[1:], "figures"))
		}
	}
	return p.list
}

func (e *Experiment) checkRun(p *problemList) {
	if len(e.Policies) == 0 {
		p.addProblem("$.policies", "no policy is named", "write policies: [predictive, round_robin]")
	}
	if len(e.Policies) > maxPolicies {
		p.addProblem("$.policies", fmt.Sprintf("there are %d policies, more than %d", len(e.Policies), maxPolicies), "take some out")
	}
	checkPolicies(p, "$.policies", e.Policies)
	checkPolicies(p, "$.small.policies", e.Small.Policies)
	misspelt := slices.ContainsFunc(e.Policies, func(name string) bool { return sim.CheckPolicy(name) != nil })
	if len(e.Policies) > 0 && !misspelt && !slices.Contains(e.Policies, e.Subject) {
		p.addProblem("$.subject", fmt.Sprintf("the subject %q is not among the policies", e.Subject), strict.SuggestName(e.Subject, e.Policies, "policies"))
	}
	checkDuration(p, "$.duration", e.Duration, e.WarmUp)
	if e.Small.Duration != 0 {
		checkDuration(p, "$.small.duration", e.Small.Duration, e.Small.WarmUp)
	}
	if e.Seeds < 1 || e.Seeds > maxSeeds {
		p.addProblem("$.seeds", fmt.Sprintf("seeds %d is out of range", e.Seeds), fmt.Sprintf("use 1 to %d", maxSeeds))
	}
	if e.Small.Seeds < 0 || e.Small.Seeds > maxSeeds {
		p.addProblem("$.small.seeds", fmt.Sprintf("seeds %d is out of range", e.Small.Seeds), fmt.Sprintf("use 1 to %d", maxSeeds))
	}
	if e.Screen < 0 || e.Screen > max(e.Seeds, 0) {
		p.addProblem("$.screen", fmt.Sprintf("screen %d is out of range for %d seeds", e.Screen, e.Seeds), "use 1 up to seeds, or 0 to run every policy with all seeds", "$.seeds")
	}
	if e.Takes < 0 {
		p.addProblem("$.takes", fmt.Sprintf("takes %v is negative", e.Takes), "write the CPU time of the last full run, such as 20m")
	}
	if e.Small.Places < 0 {
		p.addProblem("$.small.places", fmt.Sprintf("places %d is out of range", e.Small.Places), "use 1 or more, or 0 for all")
	}
	if e.Grace <= 0 || e.Grace > maxDuration {
		p.addProblem("$.grace", fmt.Sprintf("grace %v is out of range", e.Grace), "use more than 0s and at most 30 days")
	}
	checkLimits(p, "$.limits", e.Limits)
	checkStale(p, "$.staleness", &e.Staleness)
	checkEstimateError(p, "$.estimate_error", &e.EstimateError)
	checkValues(p, "$.values", e.Values)
	checkValues(p, "$.small.values", e.Small.Values)
	checkCapacity(p, "$.capacity", &e.Capacity)
	checkCapacity(p, "$.small.capacity", e.Small.Capacity)
	e.checkKnee(p, "$.knee", &e.Knee, e.Cases)
	checkVary(p, "$.vary", e.Vary)
	checkSLO(p, "$.slo", &e.SLO)
}

func checkPolicies(p *problemList, path string, names []string) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if sim.CheckPolicy(name) != nil || name == "" {
			p.addProblem(at, fmt.Sprintf("unknown policy %q", name), strict.SuggestName(name, sim.PolicyNames(), "policies"))
		} else if slices.Index(names, name) < i {
			p.addProblem(at, fmt.Sprintf("duplicate policy %s", name), "take one out")
		}
	}
}

func checkDuration(p *problemList, path string, d, warm time.Duration) {
	if d <= 0 || d > maxDuration {
		p.addProblem(path, fmt.Sprintf("duration %v is out of range", d), "use more than 0 and at most 30 days")
	} else if warm < 0 || warm >= d {
		p.addProblem(path, fmt.Sprintf("a warm-up of %v leaves nothing to measure in a duration of %v", warm, d), "use 0 or more, and less than the duration")
	}
}

func checkEstimateError(p *problemList, path string, e *float64) {
	if e != nil && !(*e >= 0 && *e <= 9) {
		p.addProblem(path, fmt.Sprintf("estimate_error %v is out of range", *e), "use 0 to 9: 0.17 is up to 17 % too long or too short")
	}
}

func checkStale(p *problemList, path string, s *Staleness) {
	if s == nil {
		return
	}
	if s.Scrape < 0 || s.Scrape > 0 && s.Scrape < time.Millisecond {
		p.addProblem(path+".scrape", fmt.Sprintf("scrape %v is out of range", s.Scrape), "use 1ms or more, or leave it out for the interval of production")
	}
	if s.Delay < 0 || s.Delay > time.Hour {
		p.addProblem(path+".delay", fmt.Sprintf("delay %v is out of range", s.Delay), "use 0s to 1h")
	}
}

func checkValues(p *problemList, path string, values []float64) {
	if len(values) > maxValues {
		p.addProblem(path, fmt.Sprintf("there are %d values, more than %d", len(values), maxValues), "take some out")
	}
	for i, v := range values {
		if v <= 0 || v > 1e7 {
			p.addProblem(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("value %v is out of range", v), "use more than 0 and at most ten million")
		} else if slices.Index(values, v) < i {
			p.addProblem(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("duplicate value %v", v), "take one out")
		}
	}
}

func checkCapacity(p *problemList, path string, c *CapacitySearch) {
	switch {
	case c == nil || c.From == 0 && c.To == 0:
	case c.From <= 0 || c.To <= c.From || c.To > 1e7:
		p.addProblem(path, fmt.Sprintf("a search from %v to %v", c.From, c.To), "use a from above 0, which should meet the SLO, and a greater to, which should not")
	case c.Attainment <= 0 || c.Attainment > 1:
		p.addProblem(path+".attainment", fmt.Sprintf("attainment %v is out of range", c.Attainment), "use a part such as 0.99")
	case c.Of != attainmentOfAll && c.Of != attainmentOfPossible:
		p.addProblem(path+".of", fmt.Sprintf("unknown of %q", c.Of), strict.SuggestName(c.Of, []string{attainmentOfAll, attainmentOfPossible}, "words"))
	case c.Within < 0.001 || c.Within > 1:
		p.addProblem(path+".within", fmt.Sprintf("within %v is out of range", c.Within), "use a part such as 0.05, 0.001 at the least")
	}
}

func checkLimits(p *problemList, path, limits string) {
	if limits != "none" && limits != "exact" {
		p.addProblem(path, fmt.Sprintf("unknown limits %q", limits), "write none or exact")
	}
}

func checkVary(p *problemList, path, vary string) {
	if known := []string{"rate", "sessions", "clients", "workers", "thin"}; !slices.Contains(known, vary) {
		p.addProblem(path, fmt.Sprintf("%q cannot be varied", vary), strict.SuggestName(vary, known, "things to vary"))
	}
}

func checkSLO(p *problemList, path string, s *SLO) {
	if s == nil {
		return
	}
	for _, x := range []struct {
		key string
		d   time.Duration
	}{{"ttft", s.TTFT}, {"tpot", s.TPOT}, {"e2e", s.E2E}} {
		if x.d < 0 {
			p.addProblem(path+"."+x.key, fmt.Sprintf("%s %v is negative", x.key, x.d), "use more than 0, or leave it out for no bound")
		}
	}
	if s.Send && s.TTFT <= 0 && s.TPOT <= 0 {
		key := "send"
		if s.EarlierSend {
			key = "told"
		}
		p.addProblem(path+"."+key, "clients have nothing to send: neither ttft nor tpot is set", "write one of them, or leave "+key+" out")
	}
}

func (e *Experiment) checkCases(p *problemList) {
	if len(e.Cases) > maxCases {
		p.addProblem("$.cases", fmt.Sprintf("there are %d cases, more than %d", len(e.Cases), maxCases), "split the experiment")
	}
	names := map[string]bool{}
	for i := range e.Cases {
		c, path := &e.Cases[i], fmt.Sprintf("$.cases[%d]", i)
		if c.Name == "" || strings.ContainsFunc(c.Name, func(r rune) bool { return !isWordRune(r) && r != '-' }) || names[c.Name] {
			p.addProblem(path+".name", fmt.Sprintf("case name %q is invalid or a duplicate", c.Name), "give each case a unique name of letters, digits and hyphens")
		}
		names[c.Name] = true
		checkFleet(p, path+".fleet", c.Fleet)
		checkWorkload(p, path+".workload", c.Workload)
		checkValues(p, path+".values", c.Values)
		checkValues(p, path+".small.values", c.Small.Values)
		checkCapacity(p, path+".capacity", c.Capacity)
		checkCapacity(p, path+".small.capacity", c.Small.Capacity)
		e.checkKnee(p, path+".knee", c.Knee, e.Cases)
		checkSLO(p, path+".slo", c.SLO)
		checkStale(p, path+".staleness", c.Staleness)
		checkEstimateError(p, path+".estimate_error", c.EstimateError)
		if c.Limits != "" {
			checkLimits(p, path+".limits", c.Limits)
		}
		if c.Vary != "" {
			checkVary(p, path+".vary", c.Vary)
		}
	}
	checkFleet(p, "$.fleet", e.Fleet)
	if e.Workload.Name != "" {
		checkWorkload(p, "$.workload", &e.Workload)
	}
	for i, c := range e.expandCases() {
		path := "$"
		if len(e.Cases) > 0 {
			path = fmt.Sprintf("$.cases[%d]", i)
		}
		if len(c.Fleet) == 0 {
			p.addProblem(path+".fleet", "the fleet has no workers", "write fleet: [{count: 8, gpu: H100, model: Llama-3.1-8B}]")
		}
		if c.Workload.Name == "" {
			p.addProblem(path+".workload", "the workload has no name", "write workload: {name: w1}")
		}
		if c.SLO.TTFT == 0 && c.SLO.TPOT == 0 && c.SLO.E2E == 0 {
			p.addProblem(path+".slo", "the slo is missing: goodput would count every answer", "write slo: {ttft: 2s, tpot: 100ms}")
		}
		if c.Knee.isWanted() && c.Knee.Load == 0 && len(c.Values) == 0 {
			p.addProblem(path+".knee", "there are no values that could be parts of the knee", "write values: [0.8, 1, 1.2], or load: 0.8 in the knee")
		}
		if c.Threshold < 0 || c.Threshold > 0 && !c.Knee.isWanted() {
			p.addProblem(path+".threshold", fmt.Sprintf("a threshold of %v times what is under way at a knee that is not looked for", c.Threshold), "give the experiment a knee, and use more than 0")
		}
		for _, why := range findUnreachableGoals(c.Fleet, c.SLO) {
			p.addProblem(path+".slo", why.reason, why.hint, "$.fleet[*]")
		}
	}
}

func checkWorkload(p *problemList, path string, w *load.Workload) {
	if w == nil {
		return
	}
	if names := PlannedWorkloads(); !slices.Contains(names, strings.ToLower(w.Name)) {
		p.addProblem(path+".name", fmt.Sprintf("unknown workload %q", w.Name), strict.SuggestName(w.Name, names, "workloads"))
	}
	if w.Rate < 0 || w.Rate > 1e7 {
		p.addProblem(path+".rate", fmt.Sprintf("rate %v is out of range", w.Rate), "use 0 to ten million requests per second")
	}
}

// plannedWorkloads are the workloads of the catalogue.
var plannedWorkloads = []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "chats"}

// PlannedWorkloads are the names that an experiment may use. MissingNeeds reports those that cannot be opened yet.
func PlannedWorkloads() []string {
	names, _ := load.WorkloadNames()
	out := slices.Clone(plannedWorkloads)
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func checkFleet(p *problemList, path string, groups []WorkerGroup) {
	if len(groups) > maxGroups {
		p.addProblem(path, fmt.Sprintf("there are %d groups of workers, more than %d", len(groups), maxGroups), "write equal workers of a zone as one group with a count")
	}
	for i := range groups {
		g, at := &groups[i], fmt.Sprintf("%s[%d]", path, i)
		if g.Count < 1 || g.Count > 50_000 {
			p.addProblem(at+".count", fmt.Sprintf("count %d is out of range", g.Count), "use 1 to 50000")
		}
		if g.Slowdown < 0.01 || g.Slowdown > 1000 {
			p.addProblem(at+".slowdown", fmt.Sprintf("slowdown %v is out of range", g.Slowdown), "use 0.01 to 1000")
		}
		if g.CacheTokens < 0 || g.CacheTokens > 1e9 {
			p.addProblem(at+".cache_tokens", fmt.Sprintf("cache_tokens %d is out of range", g.CacheTokens), "use 0 for the size that fits, or up to a billion")
		}
		if g.Window < 0 || g.Window > 1e8 {
			p.addProblem(at+".window", fmt.Sprintf("window %d is out of range", g.Window), "use 0 for the model's own, or up to a hundred million")
		}
		checkEngine(p, at, g)
	}
}

// checkEngine checks that the model runs on the GPU, and reports which of the two is wrong.
func checkEngine(p *problemList, at string, g *WorkerGroup) {
	_, err := gpu.LookupProfile(g.GPU, g.Model, g.TP)
	if err == nil {
		return
	}
	reason, hint, _ := strings.Cut(err.Error(), ": ")
	path := at + ".model"
	switch {
	case strings.HasPrefix(reason, "unknown GPU"):
		path = at + ".gpu"
		if _, list, ok := strings.Cut(hint, "use one of "); ok {
			hint = strict.SuggestName(g.GPU, strings.Split(list, ", "), "GPUs")
		}
	case strings.HasPrefix(reason, "unknown model"):
		if _, list, ok := strings.Cut(hint, "use one of "); ok {
			hint = strict.SuggestName(g.Model, strings.Split(list, ", "), "models")
		}
	case g.TP != 0:
		path = at + ".tp"
	}
	p.addProblem(path, reason, hint)
}

func (e *Experiment) checkAssertions(p *problemList) {
	if len(e.Pass) > maxAssertions {
		p.addProblem("$.pass", fmt.Sprintf("there are %d assertions, more than %d", len(e.Pass), maxAssertions), "split the experiment")
	}
	cases := e.expandCases()
	for i := range e.Pass {
		path := fmt.Sprintf("$.pass[%d].line", i)
		if e.Pass[i].Needs != "" {
			continue // plain text until it can be judged
		}
		s, err := parseAssertion(e.Pass[i].Line)
		if err != nil {
			reason, hint, ok := strings.Cut(err.Error(), ": ")
			if !ok {
				hint = "write a line as goodput(predictive) >= 0.98 * best(goodput)"
			}
			p.addProblem(path, reason, hint)
			continue
		}
		if len(s.figureCalls()) == 0 {
			p.addProblem(path, "the assertion names no figure", "write a figure as goodput(predictive)")
		}
		for _, c := range s.figureCalls() {
			e.checkFigureCall(p, path, c, cases)
		}
	}
}

func (e *Experiment) checkFigureCall(p *problemList, path string, c *figureCall, cases []Case) {
	if c.choice == "" && !slices.Contains(e.Policies, c.policy) {
		p.addProblem(path, fmt.Sprintf("the assertion names the policy %q, which is not under policies", c.policy), strict.SuggestName(c.policy, e.Policies, "policies"), "$.policies[*]")
	}
	if c.choice != "" && len(e.Policies) < 2 {
		p.addProblem(path, "the assertion needs the "+c.choice+" of the other policies, and there are none", "add one to policies")
	}
	if c.scope.caseName != "" {
		var names []string
		for i := range e.Cases {
			names = append(names, e.Cases[i].Name)
		}
		if !slices.Contains(names, c.scope.caseName) {
			p.addProblem(path, fmt.Sprintf("unknown case %q", c.scope.caseName), strict.SuggestName(c.scope.caseName, names, "cases"), "$.cases[*].name")
			return
		}
	}
	for i := range cases {
		k := &cases[i]
		if c.scope.caseName != "" && k.Name != c.scope.caseName {
			continue
		}
		if c.metric.name == capacityName && !k.Capacity.isWanted() {
			p.addProblem(path, "the assertion needs a capacity, and the experiment searches for none", "write capacity: {from: 1, to: 64}", "$.capacity")
			return
		}
		if c.scope.value != nil && !slices.Contains(k.Values, *c.scope.value) {
			p.addProblem(path, fmt.Sprintf("the assertion names the value %v, which is not under values", *c.scope.value), "add it to values", "$.values[*]")
			return
		}
	}
}
