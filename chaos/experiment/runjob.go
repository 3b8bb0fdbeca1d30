package experiment

import "github.com/spillway-lb/spillway/chaos/sim"

// isForPolicy reports whether the runs are those of a policy in a case.
func (s *policyRuns) isForPolicy(at int, policy string) bool {
	return s.jobs[0].caseIndex == at && s.jobs[0].policy == policy
}

// plannedJobs are the jobs to be run.
func (s *policyRuns) plannedJobs(screens int) []*runJob {
	if s.everySeed {
		return s.jobs
	}
	return s.jobs[:screens]
}

func (s *policyRuns) doneJobs() (out []*runJob) {
	for _, j := range s.jobs {
		if j.isDone() {
			out = append(out, j)
		}
	}
	return out
}

// toCachedRun is the stored form of a job's result.
func (j *runJob) toCachedRun() *cachedRun {
	if f := j.searched; f != nil {
		return &cachedRun{Search: &cachedSearch{f.seedFigure.toCached(), f.probes, f.limit, f.earlyEnd, f.required, f.underWay, f.leastFailed}}
	}
	o := j.outcome
	return &cachedRun{Outcome: &cachedOutcome{
		toCachedFigures(o.figures), mapValues(o.tenants, toCachedFigures), mapValues(o.regions, toCachedFigures), &o.ttft, o.counts, o.workerBusy, o.limit, o.earlyEnd,
	}}
}

func (j *runJob) fillFromCache(r *cachedRun) bool {
	if f := r.Search; f != nil && j.search {
		j.searched = &searchResult{f.Sample.toFigure(), f.Probes, f.Limit, f.Required, f.UnderWay, f.EarlyEnd, f.LeastFailed}
		return true
	}
	o := r.Outcome
	if o == nil || j.search || len(o.Figures) == 0 {
		return false
	}
	j.outcome = &runOutcome{toFigures(o.Figures), mapValues(o.Tenants, toFigures), mapValues(o.Regions, toFigures), sim.Distribution{}, o.Counts, o.Load, o.Limit, o.EarlyEnd}
	if o.TTFT != nil {
		j.outcome.ttft = *o.TTFT
	}
	return true
}
