package experiment

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
