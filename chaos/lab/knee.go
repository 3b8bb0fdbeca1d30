package lab

import (
	"context"
	"fmt"
	"slices"
)

// Knee has loads follow from what one policy sustains on the fleet, so that nobody chooses them by what the subject does.
type Knee struct {
	// Policy whose knee it is: the greatest rate, or whatever varies, at which it meets the SLO. Without one, values stand
	// for themselves. It need not be among the policies.
	Policy string `yaml:"policy"`
	// Case in which it is looked for. Default: each case has its own.
	Case string `yaml:"case"`
	// Search finds it.
	Search Capacity `yaml:"search"`
	// Load is the part of the knee's rate that is asked, whatever values stand for. 0: values are parts of the knee.
	Load float64 `yaml:"load"`
	// Small is the search in the small form.
	Small *Capacity `yaml:"small"`
}

func (k *Knee) wanted() bool { return k != nil && k.Policy != "" }

// reduce turns the search into that of the small form.
func (k *Knee) reduce() {
	if k != nil && k.Small != nil {
		k.Search = *k.Small
	}
}

// KneeReport says what a case's loads are parts of.
type KneeReport struct {
	Policy string `json:"policy"`
	Case   string `json:"case,omitempty"`
	// Value is the greatest that the policy sustains, and Attainment what part of its requests meets the SLO there.
	Value      float64 `json:"value"`
	Attainment float64 `json:"attainment"`
	// Load is the part of it that is asked; 0 where values say so.
	Load float64 `json:"load,omitempty"`
	// Busy is how many requests are under way there, on average.
	Busy float64 `json:"under_way"`
}

// kneeCase is the case in which a case's knee is looked for.
func (p *play) kneeCase(at int) int {
	if name := p.cases[at].Knee.Case; name != "" {
		return slices.IndexFunc(p.cases, func(c Case) bool { return c.Name == name })
	}
	return at
}

// kneeJobs are the searches for the cases' knees, each once.
func (p *play) kneeJobs() (out []*trial) {
	for i := range p.cases {
		k := p.cases[i].Knee
		if !k.wanted() {
			continue
		}
		from := p.kneeCase(i)
		if slices.ContainsFunc(out, func(s *trial) bool { return s.of(from, k.Policy) }) {
			continue
		}
		c := p.cases[from]
		c.Capacity = &k.Search
		if k.Load > 0 {
			c.Vary = "rate"
		}
		out = append(out, p.trial(&c, from, k.Policy, nil, true))
	}
	return out
}

// of says whether the trial is that of a policy in a case.
func (s *trial) of(at int, policy string) bool {
	return s.jobs[0].at == at && s.jobs[0].policy == policy
}

// knees finds what the cases' loads are parts of.
func (p *play) knees(ctx context.Context, searches []*trial) error {
	var jobs []*job
	for _, s := range searches {
		jobs = append(jobs, s.jobs...)
	}
	if err := p.run(ctx, jobs); err != nil {
		return err
	}
	for i := range p.cases {
		k := p.cases[i].Knee
		if !k.wanted() {
			continue
		}
		from := p.kneeCase(i)
		seeds := searches[slices.IndexFunc(searches, func(s *trial) bool { return s.of(from, k.Policy) })].jobs
		s := capacityRow(seeds)
		switch {
		case s.Missing != "":
			return fmt.Errorf("case %q takes its load from the knee of %s, which was not found: %s\nhint: begin knee.search lower", p.cases[from].Name, k.Policy, s.Missing)
		case s.Beyond:
			return fmt.Errorf("case %q takes its load from the knee of %s, which lies beyond %v\nhint: end knee.search higher", p.cases[from].Name, k.Policy, k.Search.To)
		}
		r := &KneeReport{Policy: k.Policy, Value: s.Median, Attainment: s.bar, Load: k.Load}
		if from != i {
			r.Case = p.cases[from].Name
		}
		for _, j := range seeds {
			r.Busy += j.found.busy / float64(len(seeds))
		}
		p.r.Cases[i].Knee = r
	}
	return nil
}

// loaded is a case with a job's load in it: its value, and what its knee makes of that.
func (p *play) loaded(j *job) (Case, error) {
	c, knee := *j.c, p.r.Cases[j.at].Knee
	if knee != nil && knee.Load > 0 {
		w := *c.Workload
		w.Rate = knee.Load * knee.Value
		c.Workload = &w
	}
	if c.Threshold > 0 && knee != nil {
		c.most = max(int(c.Threshold*knee.Busy), 1)
	}
	if j.value == nil {
		return c, nil
	}
	return c.with(knee.of(*j.value))
}

// of is the load that a value stands for.
func (k *KneeReport) of(value float64) float64 {
	if k == nil || k.Load > 0 {
		return value
	}
	return value * k.Value
}

// words say what the loads are parts of.
func (c *CaseReport) kneeWords() string {
	k := c.Knee
	if k == nil {
		return ""
	}
	where := ""
	if k.Case != "" {
		where = " in the case " + k.Case
	}
	vary := c.Vary
	if k.Load > 0 {
		vary = "rate"
	}
	what := Figure(k.Value, capacityUnit(vary))
	if vary != "rate" {
		what = three(k.Value) + " " + vary
	}
	knee := fmt.Sprintf("%s, the most that %s sustains%s (%s of requests within the SLO)", what, k.Policy, where, Figure(k.Attainment, "%"))
	if k.Load > 0 {
		return fmt.Sprintf("%s times %s", plainNumber(k.Load), knee)
	}
	return "1 is " + knee
}

func (e *Experiment) checkKnee(p *problems, path string, k *Knee, cases []Case) {
	if !k.wanted() {
		return
	}
	checkPolicies(p, path+".policy", []string{k.Policy})
	if !k.Search.searched() {
		p.add(path+".search", "a knee is asked for, and nothing says where to look for it", "write search: {from: 1, to: 64}")
	}
	checkCapacity(p, path+".search", &k.Search)
	checkCapacity(p, path+".small", k.Small)
	if k.Load < 0 || k.Load > 100 {
		p.add(path+".load", fmt.Sprintf("a load of %v times the knee", k.Load), "use 0.01 to 100, or leave it out where values are parts of the knee")
	}
	if k.Case != "" && !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == k.Case }) {
		p.add(path+".case", fmt.Sprintf("there is no case %q", k.Case), "name one of cases", "$.cases[*].name")
	}
}
