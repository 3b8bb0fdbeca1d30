package lab

import (
	"context"
	"fmt"
	"runtime"
	"sync"

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
	if err := p.run(ctx, p.jobs); err != nil {
		return nil, err
	}
	p.sum(p.jobs)
	if again := p.beside(); len(again) > 0 {
		p.last = again
		if err := p.run(ctx, again); err != nil {
			return nil, err
		}
		p.sum(again)
	}
	r.Passed = len(e.Pass) > 0
	for _, l := range e.Pass {
		for _, v := range judge(l, r.Cases, e.Subject) {
			r.Lines = append(r.Lines, v)
			r.Passed = r.Passed && v.Holds
		}
	}
	r.Titles = figureTitles()
	r.Finds = findings(r)
	return r, nil
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

	outcome *outcome // of a run
	found   *found   // of a search
	done    float64
}

// play is an experiment under way.
type play struct {
	e     *Experiment
	r     *Report
	o     Options
	cases []Case
	first []*job // searches for knees
	jobs  []*job
	last  []*job // runs at what was found; known when the others are over

	mu   sync.Mutex
	told float64
}

func newPlay(e *Experiment, r *Report, o Options) *play {
	p := &play{e: e, r: r, o: o, cases: e.expanded()}
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
				for _, seed := range r.Seeds {
					p.jobs = append(p.jobs, &job{c: c, at: i, policy: policy, value: v, seed: seed})
				}
			}
			if c.Capacity.searched() {
				for _, seed := range r.Seeds {
					p.jobs = append(p.jobs, &job{c: c, at: i, policy: policy, search: true, seed: seed})
				}
			}
		}
	}
	p.first = p.kneeJobs()
	return p
}

// run plays all jobs, some at a time. Their outcomes depend on nothing but themselves.
func (p *play) run(ctx context.Context, jobs []*job) error {
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

// besides is how many runs beside will make.
func (p *play) besides() (n int) {
	for i := range p.cases {
		if c := &p.cases[i]; c.Capacity.searched() && len(c.Values) == 0 {
			n += len(p.e.Policies) * len(p.r.Seeds)
		}
	}
	return n
}

// beside makes the runs of cases that were only searched: every policy at the value that the subject sustains, so that they
// can be compared at one load.
func (p *play) beside() (out []*job) {
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
			for _, seed := range p.r.Seeds {
				out = append(out, &job{c: c, at: i, policy: policy, value: &value, seed: seed})
			}
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

func (p *play) job(ctx context.Context, j *job) error {
	if ctx.Err() != nil {
		return nil
	}
	defer p.tell(j, 1)
	if j.search {
		var err error
		j.found, err = p.search(ctx, j)
		return err
	}
	c, err := p.loaded(j)
	if err != nil {
		return err
	}
	res, how, err := p.once(ctx, &c, j.policy, j.seed, func(done float64) { p.tell(j, done) })
	if err == nil {
		j.outcome = outcomeOf(res, c.SLO)
		if j.outcome.short = how.short; p.e.Meter {
			j.outcome.meter(res, how.took)
		}
	}
	return err
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

// tell notes a job's progress and passes on that of all.
func (p *play) tell(j *job, done float64) {
	if p.o.Progress == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done = max(j.done, done)
	var sum, all float64
	for _, jobs := range [][]*job{p.first, p.jobs, p.last} {
		for _, k := range jobs {
			sum += k.done * k.weight()
			all += k.weight()
		}
	}
	if len(p.last) == 0 {
		all += float64(p.besides())
	}
	if now := sum / all; now > p.told {
		p.told = now
		p.o.Progress(now)
	}
}

// weight is how many runs a job is, about.
func (j *job) weight() float64 {
	if j.search {
		return float64(j.c.Capacity.tries())
	}
	return 1
}
