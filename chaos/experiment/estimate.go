package experiment

import "slices"

// EstimateRuns is the approximate number of simulator runs of the experiment: a search is several, and screening
// saves some.
func (e *Experiment) EstimateRuns() int {
	if e.Command != "" || len(e.Needs) > 0 {
		return 0
	}
	p := newExperimentRun(e, &Report{Seeds: make([]uint64, e.Seeds)}, Options{})
	p.markNamed(p.mainRuns)
	all := p.unplannedTime()
	for _, list := range [][]*policyRuns{p.kneeSearches, p.mainRuns} {
		for _, s := range list {
			jobs := s.plannedJobs(p.screeningSeeds())
			if slices.Contains(p.kneeSearches, s) {
				jobs = s.jobs
			}
			for _, j := range jobs {
				all += j.estimateRuns()
			}
		}
	}
	return int(all)
}

// estimateRuns is the approximate number of runs of a job.
func (j *runJob) estimateRuns() float64 {
	if j.search {
		return float64(j.variation.Capacity.estimateTries(j.firstSeed != nil))
	}
	return 1
}
