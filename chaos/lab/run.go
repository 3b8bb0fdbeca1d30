package lab

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
	// Traces is the folder of public traces.
	Traces string
	// Small says in the report which form was run; see Experiment.Reduce.
	Small bool
	// Seed is the first seed; the others follow it. Default 1.
	Seed uint64
	// Workers bounds the runs at a time. Default: the cores, 2 at most.
	Workers int
	// Keep, which may be nil, has finished runs, and is given those that are made.
	Keep *Kept
	// SoFar, which may be nil, is given now and then a report of what is finished, by one goroutine at a time. Its lines are judged
	// by that, and it does not pass.
	SoFar func(*Report)
	// Progress, which may be nil, is told what part is done, 0 to 1, by one goroutine at a time.
	Progress func(done float64)
}

// Run plays an experiment. One that cannot be run has a report that says so and does not pass. The error is that of a run
// that could not be made or was stopped; it says what to do.
func Run(ctx context.Context, e *Experiment, o Options) (*Report, error) {
	r := &Report{ID: e.ID, Title: e.Title, Question: e.Question, Form: "full", Subject: e.Subject, Duration: e.Duration, WarmUp: e.WarmUp, Command: e.Command, Across: e.Across}
	if o.Small {
		r.Form = "small"
	}
	if r.Needs = e.Lacks(o.Traces); len(r.Needs) > 0 || e.Command != "" {
		for _, l := range e.Pass {
			why := "cannot run yet"
			if e.Command != "" && len(r.Needs) == 0 {
				why = "not the simulator's: run " + e.Command
			}
			r.Lines = append(r.Lines, Verdict{Line: l.Line, Figures: why, Open: l.Open})
		}
		r.Finds = findings(r)
		return r, nil
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	for i := range e.Seeds {
		r.Seeds = append(r.Seeds, o.Seed+uint64(i))
	}
	p := newPlay(e, r, o)
	if err := p.knees(ctx, p.first); err != nil {
		return nil, err
	}
	if err := p.stage(ctx, p.rows); err != nil {
		return nil, err
	}
	if p.last = p.beside(); len(p.last) > 0 {
		if err := p.stage(ctx, p.last); err != nil {
			return nil, err
		}
	}
	p.conclude(r)
	return r, nil
}

// conclude judges what the report has, and says so.
func (p *play) conclude(r *Report) {
	r.Lines, r.Passed = nil, len(p.e.Pass) > 0 && r.Part == 0
	for _, l := range p.e.Pass {
		for _, v := range judge(l, r.Cases, p.e.Subject) {
			r.Lines = append(r.Lines, v)
			r.Passed = r.Passed && v.Holds
		}
	}
	r.Titles = figureTitles()
	r.Finds = findings(r)
}

func figureTitles() (out []FigureTitle) {
	for i := range metrics {
		out = append(out, FigureTitle{metrics[i].name, metrics[i].title, metrics[i].unit})
	}
	return out
}

// job is one policy with one seed: at one value, or a search over values.
type job struct {
	c      *Case
	at     int // the case
	policy string
	value  *float64
	search bool
	seed   uint64

	lead    *job     // the same search with the first seed; nil for none
	guess   *found   // what that has found
	outcome *outcome // of a run
	found   *found   // of a search
	done    float64
	kept    bool // it was played by an earlier run
}

// played says whether something came of it yet.
func (j *job) played() bool { return j.outcome != nil || j.found != nil }

// trial is one policy at one load, or its search, with every seed.
type trial struct {
	jobs []*job
	all  bool // every seed is played, not only those that screen
}

func (p *play) trial(c *Case, at int, policy string, value *float64, search bool) *trial {
	s := &trial{}
	for _, seed := range p.r.Seeds {
		j := &job{c: c, at: at, policy: policy, value: value, search: search, seed: seed}
		if search && len(s.jobs) > 0 {
			j.lead = s.jobs[0]
		}
		s.jobs = append(s.jobs, j)
	}
	return s
}

// play is an experiment under way.
type play struct {
	e     *Experiment
	r     *Report
	o     Options
	cases []Case
	first []*trial // searches for knees
	rows  []*trial
	last  []*trial // runs at what was found; known when the others are over
	bars  objectives

	mu    sync.Mutex
	told  float64
	shown time.Time // when progress was told last
	saved time.Time // and what there is so far
	took  map[int]spent
}

func newPlay(e *Experiment, r *Report, o Options) *play {
	p := &play{e: e, r: r, o: o, cases: e.expanded(), took: map[int]spent{}}
	for i := range p.cases {
		c := &p.cases[i]
		r.Cases = append(r.Cases, CaseReport{
			Name: c.Name, Title: c.Title, Fleet: c.rows(), Workload: c.asked(), SLO: c.SLO.String(), Stale: c.Staleness.String(), Vary: c.Vary,
		})
		values := make([]*float64, 0, len(c.Values)+1)
		for k := range c.Values {
			values = append(values, &c.Values[k])
		}
		if len(values) == 0 && !c.Capacity.searched() {
			values = append(values, nil)
		}
		for _, policy := range e.Policies {
			for _, v := range values {
				p.rows = append(p.rows, p.trial(c, i, policy, v, false))
			}
			if c.Capacity.searched() {
				p.rows = append(p.rows, p.trial(c, i, policy, nil, true))
			}
		}
	}
	p.first = p.kneeJobs()
	return p
}

// run plays jobs that were not played yet, some at a time: searches that others begin with before those. Their outcomes depend on
// nothing but themselves.
func (p *play) run(ctx context.Context, jobs []*job) error {
	var leads, others []*job
	for _, j := range jobs {
		switch {
		case j.played():
		case j.lead == nil:
			leads = append(leads, j)
		default:
			others = append(others, j)
		}
	}
	if err := p.runAll(ctx, leads); err != nil {
		return err
	}
	return p.runAll(ctx, others)
}

func (p *play) runAll(ctx context.Context, jobs []*job) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	workers := p.o.Workers
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), 2)
	}
	if p.e.Meter {
		workers = 1
	}
	queue := make(chan *job)
	var running sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		running.Go(func() {
			for j := range queue {
				if err := p.job(ctx, j); err != nil && errs[i] == nil {
					errs[i] = fmt.Errorf("%s, seed %d: %w", j.name(), j.seed, err)
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

// beside makes the runs of cases that were only searched: every policy at the value that the subject sustains, so that they
// can be compared at one load.
func (p *play) beside() (out []*trial) {
	for i := range p.cases {
		c, r := &p.cases[i], &p.r.Cases[i]
		if !c.Capacity.searched() || len(c.Values) > 0 {
			continue
		}
		value := c.Capacity.From
		for k := range r.Capacity {
			if row := &r.Capacity[k]; row.Policy == p.e.Subject && row.Missing == "" {
				value = row.Median
			}
		}
		if c.Vary != "rate" {
			value = float64(whole(value))
		}
		for _, policy := range p.e.Policies {
			out = append(out, p.trial(c, i, policy, &value, false))
		}
	}
	return out
}

// name is a job in words.
func (j *job) name() string {
	out := j.policy
	if j.c.Name != "" {
		out = "case " + j.c.Name + ", " + out
	}
	if j.value != nil {
		out += fmt.Sprintf(" at %s %s", j.c.Vary, plainNumber(*j.value))
	}
	return out
}

// job plays one, or takes it from what was kept.
func (p *play) job(ctx context.Context, j *job) error {
	if ctx.Err() != nil {
		return nil
	}
	begun := time.Now()
	if j.lead != nil {
		j.guess = j.lead.found
	}
	c, err := p.loaded(j)
	if err != nil {
		return err
	}
	name := ""
	if p.o.Keep != nil {
		if name, err = p.o.Keep.name(p, j, &c); err != nil {
			return err
		}
		if r, ok := p.o.Keep.load(name); ok && p.take(j, r) {
			p.ended(j, 0)
			return nil
		}
	}
	if err := p.play(ctx, j, &c); err != nil {
		return err
	}
	p.ended(j, time.Since(begun))
	if name == "" {
		return nil
	}
	return p.o.Keep.save(name, j.keptRun())
}

// play makes a job's runs.
func (p *play) play(ctx context.Context, j *job, c *Case) error {
	if j.search {
		f, err := p.search(ctx, j)
		p.mu.Lock()
		defer p.mu.Unlock()
		j.found = f
		return err
	}
	res, how, err := p.once(ctx, c, j.policy, j.seed, func(done float64) { p.tell(j, done) })
	if err != nil {
		return err
	}
	o := outcomeOf(res, c.SLO)
	if o.short = how.short; p.e.Meter {
		o.meter(res, how.took)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j.outcome = o
	return nil
}

// how a run went that is no outcome of it.
type how struct {
	short string  // the trace's end, where it came early
	took  float64 // seconds of processors' time
}

// once plays one scenario.
func (p *play) once(ctx context.Context, c *Case, policy string, seed uint64, progress func(float64)) (r *sim.Result, h how, err error) {
	feed, err := c.open(p.e, p.o.Traces, seed)
	if err != nil {
		return nil, h, err
	}
	defer feed.Close()
	s := c.scenario(p.e, policy, seed)
	c.world(p.e, &s, feed, seed)
	begun := processorSeconds()
	if r, err = sim.Run(ctx, s, progress); err != nil {
		return nil, h, err
	}
	h.took = processorSeconds() - begun
	if at, ok := feed.Short(); ok {
		h.short = fmt.Sprintf("the trace ends at %v of %v, and nobody asks after it: shorten duration, or write repeat: true in the workload", round(at), p.e.Duration)
	}
	return r, h, nil
}
