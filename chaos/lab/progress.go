package lab

import (
	"slices"
	"time"
)

// How often progress is told, and what there is so far.
const (
	tellEvery  = 50 * time.Millisecond
	soFarEvery = 20 * time.Second
)

// spent is the time that runs of a case took.
type spent struct {
	runs float64
	time time.Duration
}

// ended notes that a job is over, and how long it took.
func (p *play) ended(j *job, took time.Duration) {
	p.mu.Lock()
	if !j.kept {
		s := p.took[j.at]
		s.runs, s.time = s.runs+j.runs(), s.time+took
		p.took[j.at] = s
	}
	p.mu.Unlock()
	p.tell(j, 1)
	p.soFar()
}

// tell notes a job's progress and passes on that of all: what is done as a part of the time that all take, as far as that can be known
// from the runs that are over. What was kept took no time.
func (p *play) tell(j *job, done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done = max(j.done, done)
	now := time.Now()
	if p.o.Progress == nil || done < 1 && now.Sub(p.shown) < tellEvery {
		return
	}
	p.shown = now
	if part := p.part(); part > p.told {
		p.told = part
		p.o.Progress(part)
	}
}

// part is how much of the time of all runs is over, 0 to 1.
func (p *play) part() float64 {
	var sum, all float64
	add := func(j *job, planned bool) {
		if j.kept {
			return
		}
		w := j.runs() * p.perRun(j.at)
		sum += j.done * w
		if planned || j.done > 0 {
			all += w
		}
	}
	for _, s := range p.first {
		for _, j := range s.jobs {
			add(j, true)
		}
	}
	for _, list := range [][]*trial{p.rows, p.last} {
		for _, s := range list {
			n := len(s.planned(p.screens()))
			for i, j := range s.jobs {
				add(j, i < n)
			}
		}
	}
	all += p.expected()
	if all == 0 {
		return 0
	}
	return min(sum/all, 1)
}

// expected is the time of runs that nobody has planned yet: of those that screening will find to be among the best, and those at what
// searches will find.
func (p *play) expected() (all float64) {
	screens, seeds := p.screens(), len(p.r.Seeds)
	searches := map[int]float64{}
	for _, s := range p.rows {
		if s.jobs[0].search {
			searches[s.jobs[0].at]++
		}
	}
	for at, n := range searches {
		if len(p.last) == 0 && len(p.cases[at].Values) == 0 {
			all += p.perRun(at) * (n*float64(screens) + min(n, finalists+1)*float64(seeds-screens))
		}
	}
	type load struct {
		at    int
		value float64
	}
	short, full := map[load]float64{}, map[load]float64{}
	for _, s := range append(p.rows[:len(p.rows):len(p.rows)], p.last...) {
		k := load{at: s.jobs[0].at}
		if s.jobs[0].value != nil {
			k.value = *s.jobs[0].value
		}
		if s.all {
			full[k]++
		} else {
			short[k] += s.jobs[0].runs()
		}
	}
	for k, n := range short {
		if more := finalists + 1 - full[k]; more > 0 {
			all += min(n, more) * float64(seeds-screens) * p.perRun(k.at)
		}
	}
	return all
}

// Runs is about how many runs of the simulator the experiment is: a search is several, and screening saves some.
func (e *Experiment) Runs() int {
	if e.Command != "" || len(e.Needs) > 0 {
		return 0
	}
	p := newPlay(e, &Report{Seeds: make([]uint64, e.Seeds)}, Options{})
	p.name(p.rows)
	all := p.expected()
	for _, list := range [][]*trial{p.first, p.rows} {
		for _, s := range list {
			jobs := s.planned(p.screens())
			if slices.Contains(p.first, s) {
				jobs = s.jobs
			}
			for _, j := range jobs {
				all += j.runs()
			}
		}
	}
	return int(all)
}

// perRun is how long a run of a case takes, in seconds: on average of those that are over, or of all cases', or one.
func (p *play) perRun(at int) float64 {
	if s := p.took[at]; s.runs > 0 {
		return max(s.time.Seconds()/s.runs, 1e-6)
	}
	var all spent
	for _, s := range p.took {
		all.runs, all.time = all.runs+s.runs, all.time+s.time
	}
	if all.runs > 0 {
		return max(all.time.Seconds()/all.runs, 1e-6)
	}
	return 1
}

// runs is how many runs a job is, about.
func (j *job) runs() float64 {
	if j.search {
		return float64(j.c.Capacity.tries(j.lead != nil))
	}
	return 1
}

// soFar passes on a report of what is finished.
func (p *play) soFar() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.saved.IsZero() {
		p.saved = now
	}
	if p.o.SoFar == nil || now.Sub(p.saved) < soFarEvery {
		return
	}
	p.saved = now
	r := *p.r
	r.Cases = append([]CaseReport(nil), p.r.Cases...)
	p.sum(&r)
	r.Part = max(p.part(), 1e-6)
	p.conclude(&r)
	p.o.SoFar(&r)
}
