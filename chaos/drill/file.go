package drill

import (
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// DrillFile is a drill as its file states it.
type DrillFile struct {
	// Name is unique in the catalogue: 1 to 40 lower-case letters, digits and hyphens.
	Name  string
	Title string
	// Hypothesis is what is expected to happen, for people. Conditions and objectives below are its figures.
	Hypothesis []string
	Fleet      FleetShape
	Load       LoadShape
	SLO        SLOTarget
	Steps      []Step
	Conditions []Condition
	Controls   []Control
	// Budget bounds the harmed requests; nil: they are counted and not judged.
	Budget     *HarmBudget
	Objectives []Objective
	Stops      []StopRule
	Pages      []ExpectedPage
	// Runbook is the path of what an operator would follow, from the root of the repository.
	Runbook string
	// Open is a known finding that makes the drill fail until it is closed; empty: none.
	Open string
	// LiveOnly is why the simulator cannot carry the drill; empty: it can.
	LiveOnly string
}

// FleetShape is the fleet of a drill, as fleet.Layout. Zero fields have the defaults of the demo.
type FleetShape struct {
	Regions, Zones, Workers, Gateways, Locals, Globals int
	// WeightsGBps is the rate at which restarted workers load their weights, in GB/s; 0: they serve at once.
	WeightsGBps float64
}

// LoadShape is the load of a drill: independent arrivals from the regions' clients in turn.
type LoadShape struct {
	// Rate is requests per second of the whole fleet, Duration how long requests are sent, and WarmUp the first part of
	// it, which is not judged.
	Rate             float64
	Duration, WarmUp time.Duration
	// PromptTokens and AnswerTokens are medians; nine of ten are below three times as much.
	PromptTokens, AnswerTokens int
	// Prefixes is the number of shared prefixes, PrefixTokens the length of each; 0: none.
	Prefixes, PrefixTokens int
	// Nightly is the share of the requests of tenant nightly, of class batch; the others are of tenant acme.
	Nightly float64
	// HoldAnswers makes the clients' resolvers keep answers at least this long.
	HoldAnswers time.Duration
	// Seed of the arrivals.
	Seed uint64
}

// SLOTarget is what a good answer meets; 0: not checked.
type SLOTarget struct{ TTFT, TPOT time.Duration }

// Step is one fault with its time.
type Step struct {
	// At is the time of injection from the start, For the time until it is cleared.
	At, For time.Duration
	// Kind is one of StepKinds. Scope and Target select what is injured; Scope is empty for kinds without a target.
	Kind   fault.Kind
	Scope  fault.Scope
	Target string
	// Params as in fault.Spec.
	Params map[string]string

	at fileSpan // of the target, for mistakes that need the whole file
}

// End is when the step is cleared.
func (s *Step) End() time.Duration { return s.At + s.For }

// RunPhase is a part of a run between its steps.
type RunPhase string

// The phases: before the first fault, from there until the last one is cleared, and from RecoveryTime after that.
const (
	PhaseBefore RunPhase = "before"
	PhaseDuring RunPhase = "during"
	PhaseAfter  RunPhase = "after"
)

// RecoveryTime is how long the fleet may take to recover after the last fault is cleared. Conditions of PhaseAfter and
// invariant I-31 count from its end.
const RecoveryTime = 30 * time.Second

// Condition is a figure that a phase must meet.
type Condition struct {
	Phase RunPhase
	Slice Slice
	// Metric is one of MetricNames, Op one of >=, <=, > and <.
	Metric, Op string
	// Value is a fraction, seconds or a count, by the metric's unit.
	Value float64
	// OfBefore: Value is relative to the figure before the first fault.
	OfBefore bool
}

// Slice is a part of the requests: of the clients of a region or of a tenant. The zero Slice is all of them.
type Slice struct{ Region, Tenant string }

// Control is a slice that the faults do not touch, and a figure of it that must not change.
type Control struct {
	Slice  Slice
	Metric string
	// Within is the allowed relative change between before and during.
	Within float64
}

// HarmBudget bounds harmed requests: those that were due from the first fault on and got no complete answer.
type HarmBudget struct {
	// Share of the requests that were due from the first fault to the end, refused ones counted. 0 with a Count of 0:
	// none may be harmed.
	Share float64
	// Count bounds the number instead, if IsCount.
	Count   int
	IsCount bool
}

// Objective bounds a step of the recovery ladder, measured from the fault.
type Objective struct {
	Rung  string // one of RungNames
	Bound time.Duration
}

// StopRule ends the run early when a figure of the last window is out of bounds.
type StopRule struct {
	Metric, Op string
	Value      float64
	For        time.Duration
}

// ExpectedPage is an alert that is expected to reach the operator.
type ExpectedPage struct {
	Alert  string
	Within time.Duration
}

// FirstFault is when the first step is injected; LastClear when the last one is cleared.
func (f *DrillFile) FirstFault() time.Duration {
	first := f.Load.Duration
	for i := range f.Steps {
		first = min(first, f.Steps[i].At)
	}
	return first
}

// LastClear is when the last step is cleared.
func (f *DrillFile) LastClear() (last time.Duration) {
	for i := range f.Steps {
		last = max(last, f.Steps[i].End())
	}
	return last
}

// UntouchedRegions lists the regions that no step is aimed at. A step without a region injures all of them.
func (f *DrillFile) UntouchedRegions() (out []string) {
	for _, region := range f.RegionNames() {
		touched := false
		for i := range f.Steps {
			s := &f.Steps[i]
			elsewhere := s.Scope != "" && strings.ContainsAny(s.Target, "-/") && !strings.HasPrefix(s.Target, region)
			elsewhere = elsewhere || s.Scope == fault.ScopeRegion && s.Target != region
			touched = touched || !elsewhere
		}
		if !touched {
			out = append(out, region)
		}
	}
	return out
}

// StopTexts lists the stop rules as files have them.
func (f *DrillFile) StopTexts() (out []string) {
	for i := range f.Stops {
		out = append(out, formatStopRule(&f.Stops[i]))
	}
	return out
}
