package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Region is what one region reports.
type Region struct {
	Name     string
	Heard    bool // lately
	Outcomes []capacity.Outcome
}

// Input is all that a decision rests on.
type Input struct {
	Guard      Guard
	Number     uint64   // of the stage
	Trial      []Region // where the spec is on trial
	Others     []Region // where it is not
	Everywhere bool     // Trial is the whole planet: what counts is the sum of its regions
	// Elapsed is how much of the Window has passed; a Window of 0 never ends by itself.
	Elapsed, Window time.Duration
}

// Action is what becomes of a spec on trial.
type Action uint8

// The actions.
const (
	Wait Action = iota
	Promote
	Rollback
)

// String names an action.
func (a Action) String() string { return [...]string{"wait", "promote", "rollback"}[a] }

// standing is what a rule says of one group of requests.
type standing uint8

const (
	fine   standing = iota
	few             // too few requests
	alone           // nothing to compare with
	unsure          // over the limit, but it may be chance
	breached
)

// Finding is one rule on one group of requests.
type Finding struct {
	Region         string // empty: all of them
	Service, Model string // both empty: all of the region's
	Rule           Rule
	Sample         int64
	Value, Limit   float64 // Limit is absolute: of a relative rule, factor times baseline
	standing       standing
	total          bool
}

// Verdict is what to do now, and why.
type Verdict struct {
	Action   Action
	Counts   bool // the time since the last look counts towards the window
	Why      string
	Findings []Finding // the worst first
}

// Decide judges a trial. It depends on nothing but its argument.
func Decide(in *Input) Verdict {
	v := Verdict{Counts: in.heard()}
	for _, g := range in.groups() {
		for _, r := range in.Guard.Rules {
			v.Findings = append(v.Findings, in.find(g, r))
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return cmp.Compare(b.standing, a.standing) })
	v.Action, v.Why = in.conclude(v)
	return v
}

// conclude makes one of all findings.
func (in *Input) conclude(v Verdict) (Action, string) {
	if len(v.Findings) > 0 && v.Findings[0].standing == breached {
		return Rollback, v.Findings[0].String()
	}
	switch {
	case in.Window == 0:
		return Wait, "it stays on trial until somebody promotes it or rolls it back"
	case in.Elapsed < in.Window:
		return Wait, fmt.Sprintf("%s of %s have passed", in.Elapsed.Round(time.Second), in.Window)
	case !v.Counts:
		return Wait, "the window is over, and a region on trial is not heard: no data is no proof"
	}
	for i := range v.Findings {
		if f := &v.Findings[i]; f.standing == unsure || f.total && f.standing != fine {
			return Wait, "the window is over, and it is still open: " + f.String()
		}
	}
	return Promote, fmt.Sprintf("%s passed without a breach", in.Window)
}

// heard says whether the regions on trial report. Of the whole planet one is enough: a region that has been lost for weeks
// must not hold everything up.
func (in *Input) heard() bool {
	silent := func(r Region) bool { return !r.Heard }
	if in.Everywhere {
		return slices.ContainsFunc(in.Trial, func(r Region) bool { return r.Heard })
	}
	return len(in.Trial) > 0 && !slices.ContainsFunc(in.Trial, silent)
}

// group is some of the requests on trial, with what they are compared with.
type group struct {
	region         string
	service, model string
	all            bool // services and models
	total          bool // its sample must suffice for a promotion
	now            capacity.Outcome
	before, others *capacity.Outcome
}

func (in *Input) groups() []group {
	var out []group
	if in.Everywhere {
		out = in.split(out, "", in.Trial, true)
	}
	for i := range in.Trial {
		out = in.split(out, in.Trial[i].Name, in.Trial[i:i+1], !in.Everywhere)
	}
	return out
}

// split adds a total of some regions, and its parts by service and model.
func (in *Input) split(out []group, name string, of []Region, total bool) []group {
	keys := [][2]string{}
	for i := range of {
		for j := range of[i].Outcomes {
			if o := &of[i].Outcomes[j]; o.Stage == in.Number {
				keys = append(keys, [2]string{o.Service, o.Model})
			}
		}
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	out = append(out, in.gather(group{region: name, all: true, total: total}, of))
	for _, k := range slices.Compact(keys) {
		out = append(out, in.gather(group{region: name, service: k[0], model: k[1]}, of))
	}
	return out
}

func (in *Input) gather(g group, of []Region) group {
	g.now = g.sum(of, in.Number)
	before, others := g.sum(of, 0), g.sum(in.Others, in.Number)
	g.before, g.others = &before, &others
	return g
}

// sum adds up the group's requests in some regions under a stage.
func (g *group) sum(of []Region, stage uint64) (total capacity.Outcome) {
	for i := range of {
		for j := range of[i].Outcomes {
			if o := &of[i].Outcomes[j]; o.Stage == stage && (g.all || o.Service == g.service && o.Model == g.model) {
				total.Add(o)
			}
		}
	}
	return total
}

// find applies a rule to a group.
func (in *Input) find(g group, r Rule) Finding {
	f := Finding{
		Region: g.region, Service: g.service, Model: g.model, Rule: r, Limit: r.Limit,
		Sample: r.sample(&g.now), Value: r.value(&g.now), total: g.total,
	}
	need := in.Guard.needs(r)
	if r.Relative {
		usual, ok := 0.0, false
		for _, base := range []*capacity.Outcome{g.before, g.others} {
			if r.sample(base) >= need {
				usual, ok = max(usual, r.usual(base)), true
			}
		}
		if f.Limit = r.Limit * usual; !ok {
			f.standing = alone
		}
	}
	k, allowed := r.bad(&g.now, f.Limit)
	switch n := float64(f.Sample); {
	case f.Sample < need:
		f.standing = few
	case f.standing == alone:
	case lower(k, n) > allowed:
		f.standing = breached
	case k > allowed*n:
		f.standing = unsure
	}
	return f
}

// String is one line for people and for the audit.
func (f *Finding) String() string {
	var b strings.Builder
	where := cmp.Or(f.Region, "everywhere")
	if f.Service != "" || f.Model != "" {
		where += " " + cmp.Or(f.Model, "(no model)") + " of " + cmp.Or(f.Service, "(no service)")
	}
	fmt.Fprintf(&b, "%s: %s is %s of %d requests", where, f.Rule.Name(), f.Rule.shown(f.Value), f.Sample)
	switch f.standing {
	case few:
		return b.String() + ", too few to judge"
	case alone:
		return b.String() + ", and nothing to compare with"
	}
	fmt.Fprintf(&b, ", limit %s", f.Rule.shown(f.Limit))
	if f.Rule.Relative {
		fmt.Fprintf(&b, " (%sx)", number(f.Rule.Limit))
	}
	if f.standing == unsure {
		b.WriteString(", which may be chance")
	}
	return b.String()
}

// shown rounds an amount for people.
func (r Rule) shown(v float64) string {
	if r.Metric == TTFT {
		return time.Duration(v * float64(time.Second)).Round(100 * time.Microsecond).String()
	}
	return fmt.Sprintf("%.3g%%", v*100)
}

// maxShown is how many findings Report lists.
const maxShown = 20

// Report lists the findings, the worst first.
func (v *Verdict) Report() string {
	var b strings.Builder
	for i := range v.Findings {
		if i == maxShown {
			fmt.Fprintf(&b, "and %d more\n", len(v.Findings)-i)
			break
		}
		b.WriteString(v.Findings[i].String() + "\n")
	}
	return b.String()
}
