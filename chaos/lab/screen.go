package lab

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// finalists is how many policies of each figure whose best or worst a line asks for are played with every seed.
const finalists = 3

// screens is how many seeds every policy is played with.
func (p *play) screens() int {
	if n := p.e.Screen; n > 0 {
		return min(n, len(p.r.Seeds))
	}
	return len(p.r.Seeds)
}

// planned are a trial' jobs that are to be played.
func (s *trial) planned(screens int) []*job {
	if s.all {
		return s.jobs
	}
	return s.jobs[:screens]
}

func (s *trial) playedJobs() (out []*job) {
	for _, j := range s.jobs {
		if j.played() {
			out = append(out, j)
		}
	}
	return out
}

// stage plays trials: each with the seeds that screen, those that lines name with all, and then, until nothing changes, whoever is
// among the best with all. So the policy that a line compares with has every seed.
func (p *play) stage(ctx context.Context, list []*trial) error {
	p.name(list)
	for {
		var jobs []*job
		for _, s := range list {
			for _, j := range s.planned(p.screens()) {
				if !j.played() {
					jobs = append(jobs, j)
				}
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		if err := p.run(ctx, jobs); err != nil {
			return err
		}
		p.sum(p.r)
		p.promote(list)
	}
}

// name has the subject and whom lines name played with every seed.
func (p *play) name(list []*trial) {
	for _, s := range list {
		j := s.jobs[0]
		s.all = s.all || j.policy == p.e.Subject || p.e.names(j.policy, p.cases[j.at].Name)
	}
}

// names says whether a line names the policy where it speaks of the case.
func (e *Experiment) names(policy, name string) bool {
	for _, s := range e.statements() {
		for _, c := range s.calls() {
			if c.pick == "" && c.policy == policy && (c.where.name == "" || c.where.name == name) {
				return true
			}
		}
	}
	return false
}

// statements are the lines that can be judged.
func (e *Experiment) statements() (out []*statement) {
	for _, l := range e.Pass {
		if l.Needs != "" {
			continue
		}
		if s, err := parseLine(l.Line); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// promote has whoever is among the best of a figure that a line asks for played with every seed.
func (p *play) promote(list []*trial) {
	for _, s := range p.e.statements() {
		for _, e := range s.places(p.r.Cases, p.e.Subject) {
			for _, c := range s.calls() {
				at, value := e.at(c)
				if c.pick == "" || at == nil {
					continue
				}
				for _, policy := range e.ranked(c, at, value)[:min(finalists, len(e.ranked(c, at, value)))] {
					p.all(list, at, policy, value, c.metric.name == capacityName)
				}
			}
		}
	}
}

// all marks a trial as one to be played with every seed.
func (p *play) all(list []*trial, at *CaseReport, policy string, value *float64, search bool) {
	for _, s := range list {
		j := s.jobs[0]
		if &p.r.Cases[j.at] == at && j.policy == policy && j.search == search && (search || same(j.value, value)) {
			s.all = true
		}
	}
}

// ranked are the policies but the subject that have a figure, the one first that best or worst would choose.
func (e *env) ranked(c *call, at *CaseReport, value *float64) []string {
	figures := map[string]float64{}
	var out []string
	for _, policy := range at.policies() {
		a := at.amount(c, policy, value)
		if policy == e.subject || a.why != "" && !math.IsInf(a.v, 1) {
			continue
		}
		out, figures[policy] = append(out, policy), a.v
	}
	slices.SortStableFunc(out, func(a, b string) int {
		if c.less() {
			a, b = b, a
		}
		return cmp.Compare(figures[b], figures[a])
	})
	return out
}

// less says whether the call looks for the least figure.
func (c *call) less() bool { return (c.pick == "best") == c.metric.less }
