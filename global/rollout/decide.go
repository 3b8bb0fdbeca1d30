// Package rollout judges a staged spec: from the outcomes that gateways report (capacity.OutcomeCounts),
// DecideRollout returns whether the spec is promoted, rolled back, or watched for longer.
//
// A breach must be statistically significant: a share of bad requests is compared with its limit by the lower end of
// its confidence interval, so that two errors out of fifty do not end a rollout whose limit is two in a hundred; in
// between, the rollout continues. Figures are judged for each staged region separately, in total and by service and
// model, so that a broken model does not hide behind one with more requests. Limits such as 1.5x are relative to the
// worse of two baselines: the same region before the rollout, and the other regions now. A day that is bad everywhere
// is therefore not attributed to the spec.
//
// Missing data is neither good nor bad: without a minimum of requests nothing is promoted or rolled back, and time in
// which a staged region does not report does not count towards the window. The package is a pure function of its
// input: time is an argument, it never waits, and it keeps no state.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// RegionReport is the report of one region.
type RegionReport struct {
	Name      string
	Reporting bool // recently
	Outcomes  []capacity.OutcomeCounts
}

// RolloutInput is the complete input of a decision.
type RolloutInput struct {
	Conditions AbortConditions
	Number     uint64         // of the stage
	Staged     []RegionReport // regions where the spec is staged
	Others     []RegionReport // all other regions
	Everywhere bool           // Staged is the whole fleet: the sum of its regions counts
	// Elapsed is how much of the Window has passed; a Window of 0 never ends by itself.
	Elapsed, Window time.Duration
}

// RolloutAction is what to do with a staged spec.
type RolloutAction uint8

// The actions.
const (
	Wait RolloutAction = iota
	Promote
	Rollback
)

// String returns the name of an action.
func (a RolloutAction) String() string { return [...]string{"wait", "promote", "rollback"}[a] }

// DecideRollout judges a rollout. The result depends only on its argument.
func DecideRollout(in *RolloutInput) RolloutDecision {
	v := RolloutDecision{TimeCounts: in.isReporting()}
	for _, g := range in.buildGroups() {
		for _, r := range in.Conditions.Rules {
			v.Findings = append(v.Findings, in.evaluateRule(g, r))
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return cmp.Compare(b.state, a.state) })
	v.Action, v.Reason = in.concludeFindings(v)
	return v
}

// concludeFindings combines all findings to one action and its reason.
func (in *RolloutInput) concludeFindings(v RolloutDecision) (RolloutAction, string) {
	if len(v.Findings) > 0 && v.Findings[0].state == stateBreached {
		return Rollback, v.Findings[0].String()
	}
	switch {
	case in.Window == 0:
		return Wait, "it stays staged until an operator promotes it or rolls it back"
	case in.Elapsed < in.Window:
		return Wait, fmt.Sprintf("%s of %s have passed", in.Elapsed.Round(time.Second), in.Window)
	case !v.TimeCounts:
		return Wait, "the window is over, and a staged region does not report: waiting for its data"
	}
	for i := range v.Findings {
		if f := &v.Findings[i]; f.state == stateUncertain || f.isTotal && f.state != stateOK {
			return Wait, "the window is over, and one finding is undecided: " + f.String()
		}
	}
	return Promote, fmt.Sprintf("%s passed without a breach", in.Window)
}

// isReporting reports whether the staged regions report. If the whole fleet is staged, one region is enough, because
// a region that has been lost for weeks must not block the rollout.
func (in *RolloutInput) isReporting() bool {
	silent := func(r RegionReport) bool { return !r.Reporting }
	if in.Everywhere {
		return slices.ContainsFunc(in.Staged, func(r RegionReport) bool { return r.Reporting })
	}
	return len(in.Staged) > 0 && !slices.ContainsFunc(in.Staged, silent)
}

// requestGroup is a group of staged requests, with its baselines.
type requestGroup struct {
	region                      string
	service, model              string
	allRequests                 bool // services and models
	isTotal                     bool // its sample must suffice for a promotion
	current                     capacity.OutcomeCounts
	beforeRollout, otherRegions *capacity.OutcomeCounts
}

func (in *RolloutInput) buildGroups() []requestGroup {
	var out []requestGroup
	if in.Everywhere {
		out = in.appendGroups(out, "", in.Staged, true)
	}
	for i := range in.Staged {
		out = in.appendGroups(out, in.Staged[i].Name, in.Staged[i:i+1], !in.Everywhere)
	}
	return out
}

// appendGroups adds a total of some regions, and its parts by service and model.
func (in *RolloutInput) appendGroups(out []requestGroup, name string, of []RegionReport, total bool) []requestGroup {
	keys := [][2]string{}
	for i := range of {
		for j := range of[i].Outcomes {
			if o := &of[i].Outcomes[j]; o.Stage == in.Number {
				keys = append(keys, [2]string{o.Service, o.Model})
			}
		}
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	out = append(out, in.fillGroup(requestGroup{region: name, allRequests: true, isTotal: total}, of))
	for _, k := range slices.Compact(keys) {
		out = append(out, in.fillGroup(requestGroup{region: name, service: k[0], model: k[1]}, of))
	}
	return out
}

func (in *RolloutInput) fillGroup(g requestGroup, of []RegionReport) requestGroup {
	g.current = sumOutcomes(&g, of, in.Number)
	before, others := sumOutcomes(&g, of, 0), sumOutcomes(&g, in.Others, in.Number)
	g.beforeRollout, g.otherRegions = &before, &others
	return g
}

// sumOutcomes sums up the group's requests in some regions under a stage.
func sumOutcomes(g *requestGroup, of []RegionReport, stage uint64) (total capacity.OutcomeCounts) {
	for i := range of {
		for j := range of[i].Outcomes {
			if o := &of[i].Outcomes[j]; o.Stage == stage && (g.allRequests || o.Service == g.service && o.Model == g.model) {
				total.AddCounts(o)
			}
		}
	}
	return total
}

// evaluateRule applies a rule to a group.
func (in *RolloutInput) evaluateRule(g requestGroup, r Rule) Finding {
	f := Finding{
		Region: g.region, Service: g.service, Model: g.model, Rule: r, Limit: r.Limit,
		Sample: r.sampleSize(&g.current), Value: r.measuredValue(&g.current), isTotal: g.isTotal,
	}
	need := in.Conditions.minSample(r)
	if r.Relative {
		usual, ok := 0.0, false
		for _, base := range []*capacity.OutcomeCounts{g.beforeRollout, g.otherRegions} {
			if r.sampleSize(base) >= need {
				usual, ok = max(usual, r.baselineValue(base)), true
			}
		}
		if f.Limit = r.Limit * usual; !ok {
			f.state = stateNoBaseline
		}
	}
	k, allowed := r.countOverLimit(&g.current, f.Limit)
	switch n := float64(f.Sample); {
	case f.Sample < need:
		f.state = stateTooFew
	case f.state == stateNoBaseline:
	case wilsonLowerBound(k, n) > allowed:
		f.state = stateBreached
	case k > allowed*n:
		f.state = stateUncertain
	}
	return f
}
