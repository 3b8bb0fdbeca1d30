package experiment

import (
	"context"
)

// finalistCount is how many policies of each figure whose best or worst an assertion uses are run with every seed.
const finalistCount = 3

// screeningSeeds is the number of seeds that every policy is run with.
func (p *experimentRun) screeningSeeds() int {
	if n := p.experiment.Screen; n > 0 {
		return min(n, len(p.report.Seeds))
	}
	return len(p.report.Seeds)
}

// runStage runs policies: each with the screening seeds, named ones with all, and then, until nothing changes, those
// among the best with all. So the policy that an assertion compares with has every seed.
func (p *experimentRun) runStage(ctx context.Context, list []*policyRuns) error {
	p.markNamed(list)
	for {
		var jobs []*runJob
		for _, s := range list {
			for _, j := range s.plannedJobs(p.screeningSeeds()) {
				if !j.isDone() {
					jobs = append(jobs, j)
				}
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		if err := p.runJobs(ctx, jobs); err != nil {
			return err
		}
		p.makeRows(p.report)
		p.markBest(list)
	}
}

// markNamed marks the subject and the policies that assertions name for every seed.
func (p *experimentRun) markNamed(list []*policyRuns) {
	for _, s := range list {
		j := s.jobs[0]
		s.everySeed = s.everySeed || j.policy == p.experiment.Subject || p.experiment.namesPolicy(j.policy, p.cases[j.caseIndex].Name)
	}
}

// namesPolicy reports whether an assertion that covers the case names the policy.
func (e *Experiment) namesPolicy(policy, name string) bool {
	for _, s := range e.parsedAssertions() {
		for _, c := range s.figureCalls() {
			if c.choice == "" && c.policy == policy && (c.scope.caseName == "" || c.scope.caseName == name) {
				return true
			}
		}
	}
	return false
}

// parsedAssertions are the assertions that can be judged.
func (e *Experiment) parsedAssertions() (out []*comparisonExpr) {
	for _, l := range e.Pass {
		if l.Needs != "" {
			continue
		}
		if s, err := parseAssertion(l.Line); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// markBest marks the policies among the best of a figure that an assertion uses for every seed.
func (p *experimentRun) markBest(list []*policyRuns) {
	for _, s := range p.experiment.parsedAssertions() {
		for _, e := range s.judgeScopes(p.report.Cases, p.experiment.Subject) {
			for _, c := range s.figureCalls() {
				at, value := e.resolveScope(c)
				if c.choice == "" || at == nil {
					continue
				}
				for _, policy := range e.rankPolicies(c, at, value)[:min(finalistCount, len(e.rankPolicies(c, at, value)))] {
					p.markEverySeed(list, at, policy, value, c.metric.name == capacityName)
				}
			}
		}
	}
}

// markEverySeed marks a policy's runs for every seed.
func (p *experimentRun) markEverySeed(list []*policyRuns, at *CaseReport, policy string, value *float64, search bool) {
	for _, s := range list {
		j := s.jobs[0]
		if &p.report.Cases[j.caseIndex] == at && j.policy == policy && j.search == search && (search || equalValues(j.value, value)) {
			s.everySeed = true
		}
	}
}
