package experiment

import (
	"time"
)

// Intervals of progress and partial reports.
const (
	progressInterval      = 50 * time.Millisecond
	partialReportInterval = 20 * time.Second
)

// runTime is the time of a case's runs.
type runTime struct {
	runs float64
	time time.Duration
}

// finishJob records that a job is done, and its duration.
func (p *experimentRun) finishJob(j *runJob, took time.Duration) {
	p.mu.Lock()
	if !j.fromCache {
		s := p.timeByCase[j.caseIndex]
		s.runs, s.time = s.runs+j.estimateRuns(), s.time+took
		p.timeByCase[j.caseIndex] = s
	}
	p.mu.Unlock()
	p.reportProgress(j, 1)
	p.reportPartial()
}

// reportProgress records a job's progress and reports the total: the done fraction of the estimated time of all runs,
// by the runs that are done. Cached runs took no time.
func (p *experimentRun) reportProgress(j *runJob, done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done = max(j.done, done)
	now := time.Now()
	if p.options.OnProgress == nil || done < 1 && now.Sub(p.lastProgress) < progressInterval {
		return
	}
	p.lastProgress = now
	if part := p.doneShare(); part > p.reportedShare {
		p.reportedShare = part
		p.options.OnProgress(part)
	}
}

// doneShare is the done fraction of the time of all runs, 0 to 1.
func (p *experimentRun) doneShare() float64 {
	var sum, all float64
	add := func(j *runJob, planned bool) {
		if j.fromCache {
			return
		}
		w := j.estimateRuns() * p.runSeconds(j.caseIndex)
		sum += j.done * w
		if planned || j.done > 0 {
			all += w
		}
	}
	for _, s := range p.kneeSearches {
		for _, j := range s.jobs {
			add(j, true)
		}
	}
	for _, list := range [][]*policyRuns{p.mainRuns, p.comparisonRuns} {
		for _, s := range list {
			n := len(s.plannedJobs(p.screeningSeeds()))
			for i, j := range s.jobs {
				add(j, i < n)
			}
		}
	}
	all += p.unplannedTime()
	if all == 0 {
		return 0
	}
	return min(sum/all, 1)
}

// unplannedTime is the time of runs that are not planned yet: of the policies that screening will select, and of
// those at the results of searches.
func (p *experimentRun) unplannedTime() (all float64) {
	screens, seeds := p.screeningSeeds(), len(p.report.Seeds)
	searches := map[int]float64{}
	for _, s := range p.mainRuns {
		if s.jobs[0].search {
			searches[s.jobs[0].caseIndex]++
		}
	}
	for at, n := range searches {
		if len(p.comparisonRuns) == 0 && len(p.cases[at].Values) == 0 {
			all += p.runSeconds(at) * (n*float64(screens) + min(n, finalistCount+1)*float64(seeds-screens))
		}
	}
	type load struct {
		at    int
		value float64
	}
	short, full := map[load]float64{}, map[load]float64{}
	for _, s := range append(p.mainRuns[:len(p.mainRuns):len(p.mainRuns)], p.comparisonRuns...) {
		k := load{at: s.jobs[0].caseIndex}
		if s.jobs[0].value != nil {
			k.value = *s.jobs[0].value
		}
		if s.everySeed {
			full[k]++
		} else {
			short[k] += s.jobs[0].estimateRuns()
		}
	}
	for k, n := range short {
		if more := finalistCount + 1 - full[k]; more > 0 {
			all += min(n, more) * float64(seeds-screens) * p.runSeconds(k.at)
		}
	}
	return all
}

// runSeconds is the time of a run of a case, in seconds: the mean of those that are done, or of all cases', or one.
func (p *experimentRun) runSeconds(at int) float64 {
	if s := p.timeByCase[at]; s.runs > 0 {
		return max(s.time.Seconds()/s.runs, 1e-6)
	}
	var all runTime
	for _, s := range p.timeByCase {
		all.runs, all.time = all.runs+s.runs, all.time+s.time
	}
	if all.runs > 0 {
		return max(all.time.Seconds()/all.runs, 1e-6)
	}
	return 1
}

// reportPartial passes a report of the finished part.
func (p *experimentRun) reportPartial() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.lastPartial.IsZero() {
		p.lastPartial = now
	}
	if p.options.OnPartialReport == nil || now.Sub(p.lastPartial) < partialReportInterval {
		return
	}
	p.lastPartial = now
	r := *p.report
	r.Cases = append([]CaseReport(nil), p.report.Cases...)
	p.makeRows(&r)
	r.DoneShare = max(p.doneShare(), 1e-6)
	p.judgeReport(&r)
	p.options.OnPartialReport(&r)
}
