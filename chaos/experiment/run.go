package experiment

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// Options of a run.
type Options struct {
	// Traces is the directory of public traces.
	Traces string
	// Small states in the report which form was run; see Experiment.UseSmallForm.
	Small bool
	// Seed is the first seed; the others follow it. Default 1.
	Seed uint64
	// Workers bounds the concurrent runs. Default: the cores, 2 at most.
	Workers int
	// Cache, which may be nil, holds finished runs, and new ones are added to it.
	Cache *RunCache
	// OnPartialReport, which may be nil, is called now and then with a report of the finished part, by one goroutine
	// at a time. Its assertions are judged by that part, and it does not pass.
	OnPartialReport func(*Report)
	// OnProgress, which may be nil, is called with the fraction done, 0 to 1, by one goroutine at a time.
	OnProgress func(done float64)
}

// RunExperiment runs an experiment. If it cannot be run, the report states that and does not pass. The error is that
// of a run that was invalid or was stopped; it names what to do.
func RunExperiment(ctx context.Context, e *Experiment, o Options) (*Report, error) {
	r := &Report{ID: e.ID, Title: e.Title, Question: e.Question, Form: "full", Subject: e.Subject, Duration: e.Duration, WarmUp: e.WarmUp, Command: e.Command, Across: e.Across}
	if o.Small {
		r.Form = "small"
	}
	if r.Needs = e.MissingNeeds(o.Traces); len(r.Needs) > 0 || e.Command != "" {
		for _, l := range e.Pass {
			why := "cannot run yet"
			if e.Command != "" && len(r.Needs) == 0 {
				why = "not the simulator's: run " + e.Command
			}
			r.Lines = append(r.Lines, AssertionResult{Line: l.Line, Figures: why, KnownReason: l.Open})
		}
		r.Finds = writeFindings(r)
		return r, nil
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	for i := range e.Seeds {
		r.Seeds = append(r.Seeds, o.Seed+uint64(i))
	}
	p := newExperimentRun(e, r, o)
	if err := p.findKnees(ctx, p.kneeSearches); err != nil {
		return nil, err
	}
	if err := p.runStage(ctx, p.mainRuns); err != nil {
		return nil, err
	}
	if p.comparisonRuns = p.planComparisonRuns(); len(p.comparisonRuns) > 0 {
		if err := p.runStage(ctx, p.comparisonRuns); err != nil {
			return nil, err
		}
	}
	p.judgeReport(r)
	return r, nil
}

// judgeReport judges the report's assertions and writes its findings.
func (p *experimentRun) judgeReport(r *Report) {
	r.Lines, r.Passed = nil, len(p.experiment.Pass) > 0 && r.DoneShare == 0
	for _, l := range p.experiment.Pass {
		for _, v := range judgeAssertion(l, r.Cases, p.experiment.Subject) {
			r.Lines = append(r.Lines, v)
			r.Passed = r.Passed && v.Holds
		}
	}
	r.Titles = listFigureTitles()
	r.Finds = writeFindings(r)
}

func listFigureTitles() (out []FigureTitle) {
	for i := range metrics {
		out = append(out, FigureTitle{metrics[i].name, metrics[i].title, metrics[i].unit})
	}
	return out
}

// runJob is one policy with one seed: at one value, or a search over values.
type runJob struct {
	variation *Case
	caseIndex int // index of the case
	policy    string
	value     *float64
	search    bool
	seed      uint64

	firstSeed *runJob       // the same search with the first seed; nil for none
	guess     *searchResult // its result
	outcome   *runOutcome   // of a run
	searched  *searchResult // of a search
	done      float64
	fromCache bool // taken from the run cache
}

// isDone reports whether the job has a result.
func (j *runJob) isDone() bool { return j.outcome != nil || j.searched != nil }

// policyRuns is one policy at one load, or its search, with every seed.
type policyRuns struct {
	jobs      []*runJob
	everySeed bool // every seed is run, not only those of the screening
}

func (p *experimentRun) newPolicyRuns(c *Case, at int, policy string, value *float64, search bool) *policyRuns {
	s := &policyRuns{}
	for _, seed := range p.report.Seeds {
		j := &runJob{variation: c, caseIndex: at, policy: policy, value: value, search: search, seed: seed}
		if search && len(s.jobs) > 0 {
			j.firstSeed = s.jobs[0]
		}
		s.jobs = append(s.jobs, j)
	}
	return s
}

// experimentRun is a running experiment.
type experimentRun struct {
	experiment     *Experiment
	report         *Report
	options        Options
	cases          []Case
	kneeSearches   []*policyRuns // searches for knees
	mainRuns       []*policyRuns
	comparisonRuns []*policyRuns // runs at the results of searches; known when the others are done
	attainments    attainmentCache

	mu            sync.Mutex
	reportedShare float64
	lastProgress  time.Time // time of the last progress report
	lastPartial   time.Time // time of the last partial report
	timeByCase    map[int]runTime
}

func newExperimentRun(e *Experiment, r *Report, o Options) *experimentRun {
	p := &experimentRun{experiment: e, report: r, options: o, cases: e.expandCases(), timeByCase: map[int]runTime{}}
	for i := range p.cases {
		c := &p.cases[i]
		r.Cases = append(r.Cases, CaseReport{
			Name: c.Name, Title: c.Title, Fleet: c.fleetRows(), Workload: c.describeWorkload(), SLO: c.SLO.String(), Stale: c.Staleness.String(), Vary: c.Vary,
		})
		values := make([]*float64, 0, len(c.Values)+1)
		for k := range c.Values {
			values = append(values, &c.Values[k])
		}
		if len(values) == 0 && !c.Capacity.isWanted() {
			values = append(values, nil)
		}
		for _, policy := range e.Policies {
			for _, v := range values {
				p.mainRuns = append(p.mainRuns, p.newPolicyRuns(c, i, policy, v, false))
			}
			if c.Capacity.isWanted() {
				p.mainRuns = append(p.mainRuns, p.newPolicyRuns(c, i, policy, nil, true))
			}
		}
	}
	p.kneeSearches = p.planKneeSearches()
	return p
}

// runJobs runs jobs that are not done, some concurrently: searches whose results others start from before those.
// Their outcomes do not depend on the order.
func (p *experimentRun) runJobs(ctx context.Context, jobs []*runJob) error {
	var leads, others []*runJob
	for _, j := range jobs {
		switch {
		case j.isDone():
		case j.firstSeed == nil:
			leads = append(leads, j)
		default:
			others = append(others, j)
		}
	}
	if err := p.runInParallel(ctx, leads); err != nil {
		return err
	}
	return p.runInParallel(ctx, others)
}

func (p *experimentRun) runInParallel(ctx context.Context, jobs []*runJob) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	workers := p.options.Workers
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), 2)
	}
	if p.experiment.Meter {
		workers = 1
	}
	queue := make(chan *runJob)
	var running sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		running.Go(func() {
			for j := range queue {
				if err := p.runOrLoadJob(ctx, j); err != nil && errs[i] == nil {
					errs[i] = fmt.Errorf("%s, seed %d: %w", j.describeJob(), j.seed, err)
					stop(errs[i])
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case queue <- j:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	running.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// planComparisonRuns plans the runs of cases that were only searched: every policy at the value that the subject
// sustains, so that they can be compared at one load.
func (p *experimentRun) planComparisonRuns() (out []*policyRuns) {
	for i := range p.cases {
		c, r := &p.cases[i], &p.report.Cases[i]
		if !c.Capacity.isWanted() || len(c.Values) > 0 {
			continue
		}
		value := c.Capacity.From
		for k := range r.Capacity {
			if row := &r.Capacity[k]; row.Policy == p.experiment.Subject && row.Missing == "" {
				value = row.Median
			}
		}
		if c.Vary != "rate" {
			value = float64(roundToCount(value))
		}
		for _, policy := range p.experiment.Policies {
			out = append(out, p.newPolicyRuns(c, i, policy, &value, false))
		}
	}
	return out
}

// describeJob describes a job.
func (j *runJob) describeJob() string {
	out := j.policy
	if j.variation.Name != "" {
		out = "case " + j.variation.Name + ", " + out
	}
	if j.value != nil {
		out += fmt.Sprintf(" at %s %s", j.variation.Vary, formatPlain(*j.value))
	}
	return out
}

// runOrLoadJob runs a job, or takes it from the cache.
func (p *experimentRun) runOrLoadJob(ctx context.Context, j *runJob) error {
	if ctx.Err() != nil {
		return nil
	}
	begun := time.Now()
	if j.firstSeed != nil {
		j.guess = j.firstSeed.searched
	}
	c, err := p.caseAtLoad(j)
	if err != nil {
		return err
	}
	name := ""
	if p.options.Cache != nil {
		if name, err = p.options.Cache.fileName(p, j, &c); err != nil {
			return err
		}
		if r, ok := p.options.Cache.loadRun(name); ok && p.useCachedRun(j, r) {
			p.finishJob(j, 0)
			return nil
		}
	}
	if err := p.runJob(ctx, j, &c); err != nil {
		return err
	}
	p.finishJob(j, time.Since(begun))
	if name == "" {
		return nil
	}
	return p.options.Cache.saveRun(name, j.toCachedRun())
}

// runJob makes a job's runs.
func (p *experimentRun) runJob(ctx context.Context, j *runJob, c *Case) error {
	if j.search {
		f, err := p.searchCapacity(ctx, j)
		p.mu.Lock()
		defer p.mu.Unlock()
		j.searched = f
		return err
	}
	res, how, err := p.runScenario(ctx, c, j.policy, j.seed, func(done float64) { p.reportProgress(j, done) })
	if err != nil {
		return err
	}
	o := newRunOutcome(res, c.SLO)
	if o.earlyEnd = how.earlyEnd; p.experiment.Meter {
		o.addSimCost(res, how.cpuSeconds)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j.outcome = o
	return nil
}

// runFacts are facts of a run that are not part of its outcome.
type runFacts struct {
	earlyEnd   string  // the end of a trace that ended early
	cpuSeconds float64 // CPU seconds
}

// runScenario runs one scenario.
func (p *experimentRun) runScenario(ctx context.Context, c *Case, policy string, seed uint64, progress func(float64)) (r *sim.RunResult, h runFacts, err error) {
	feed, err := c.openFeed(p.experiment, p.options.Traces, seed)
	if err != nil {
		return nil, h, err
	}
	defer feed.Close()
	s := c.makeScenario(p.experiment, policy, seed)
	c.addWorld(p.experiment, &s, feed, seed)
	begun := processorSeconds()
	if r, err = sim.Run(ctx, s, progress); err != nil {
		return nil, h, err
	}
	h.cpuSeconds = processorSeconds() - begun
	if at, ok := feed.EarlyEnd(); ok {
		h.earlyEnd = fmt.Sprintf("the trace ends at %v of %v, and no requests arrive after it: shorten duration, or write repeat: true in the workload", roundDuration(at), p.experiment.Duration)
	}
	return r, h, nil
}
