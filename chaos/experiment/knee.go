package experiment

import (
	"context"
	"fmt"
	"slices"
)

// Knee derives loads from what one policy sustains on the fleet, so that they do not depend on the subject.
type Knee struct {
	// Policy of the knee: the greatest rate, or other varied value, at which it meets the SLO. Without one, values
	// are absolute. It need not be one of policies.
	Policy string `yaml:"policy"`
	// Case in which the knee is measured. Default: each case has its own.
	Case string `yaml:"case"`
	// Search for the knee.
	Search CapacitySearch `yaml:"search"`
	// Load is the fraction of the knee's rate that is offered, for any meaning of values. 0: values are fractions of
	// the knee.
	Load float64 `yaml:"load"`
	// Small is the search in the small form.
	Small *CapacitySearch `yaml:"small"`
}

func (k *Knee) isWanted() bool { return k != nil && k.Policy != "" }

// useSmallSearch replaces the search by that of the small form.
func (k *Knee) useSmallSearch() {
	if k != nil && k.Small != nil {
		k.Search = *k.Small
	}
}

// KneeReport is the knee that a case's loads are fractions of.
type KneeReport struct {
	Policy string `json:"policy"`
	Case   string `json:"case,omitempty"`
	// Value is the greatest that the policy sustains, and Attainment the fraction of its requests that meet the SLO
	// there.
	Value      float64 `json:"value"`
	Attainment float64 `json:"attainment"`
	// Load is the offered fraction of it; 0 if values are fractions.
	Load float64 `json:"load,omitempty"`
	// UnderWay is the mean number of requests in flight there.
	UnderWay float64 `json:"under_way"`
}

// kneeCaseOf is the case in which a case's knee is measured.
func (p *experimentRun) kneeCaseOf(at int) int {
	if name := p.cases[at].Knee.Case; name != "" {
		return slices.IndexFunc(p.cases, func(c Case) bool { return c.Name == name })
	}
	return at
}

// planKneeSearches plans the searches for the cases' knees, each once.
func (p *experimentRun) planKneeSearches() (out []*policyRuns) {
	for i := range p.cases {
		k := p.cases[i].Knee
		if !k.isWanted() {
			continue
		}
		from := p.kneeCaseOf(i)
		if slices.ContainsFunc(out, func(s *policyRuns) bool { return s.isForPolicy(from, k.Policy) }) {
			continue
		}
		c := p.cases[from]
		c.Capacity = &k.Search
		if k.Load > 0 {
			c.Vary = "rate"
		}
		out = append(out, p.newPolicyRuns(&c, from, k.Policy, nil, true))
	}
	return out
}

// findKnees runs the searches for the knees.
func (p *experimentRun) findKnees(ctx context.Context, searches []*policyRuns) error {
	var jobs []*runJob
	for _, s := range searches {
		jobs = append(jobs, s.jobs...)
	}
	if err := p.runJobs(ctx, jobs); err != nil {
		return err
	}
	for i := range p.cases {
		k := p.cases[i].Knee
		if !k.isWanted() {
			continue
		}
		from := p.kneeCaseOf(i)
		seeds := searches[slices.IndexFunc(searches, func(s *policyRuns) bool { return s.isForPolicy(from, k.Policy) })].jobs
		s := makeCapacityRow(seeds)
		switch {
		case s.Missing != "":
			return fmt.Errorf("case %q takes its load from the knee of %s, which was not found: %s\nhint: begin knee.search lower", p.cases[from].Name, k.Policy, s.Missing)
		case s.AtLeast:
			return fmt.Errorf("case %q takes its load from the knee of %s, which lies beyond %v\nhint: end knee.search higher", p.cases[from].Name, k.Policy, k.Search.To)
		}
		r := &KneeReport{Policy: k.Policy, Value: s.Median, Attainment: s.required, Load: k.Load}
		if from != i {
			r.Case = p.cases[from].Name
		}
		for _, j := range seeds {
			r.UnderWay += j.searched.underWay / float64(len(seeds))
		}
		p.report.Cases[i].Knee = r
	}
	return nil
}

// caseAtLoad is a case with a job's value, scaled by its knee.
func (p *experimentRun) caseAtLoad(j *runJob) (Case, error) {
	c, knee := *j.variation, p.report.Cases[j.caseIndex].Knee
	if knee != nil && knee.Load > 0 {
		w := *c.Workload
		w.Rate = knee.Load * knee.Value
		c.Workload = &w
	}
	if c.Threshold > 0 && knee != nil {
		c.maxUnderWay = max(int(c.Threshold*knee.UnderWay), 1)
	}
	if j.value == nil {
		return c, nil
	}
	return c.withValue(knee.loadAt(*j.value))
}
