package drill

import (
	"fmt"
	"slices"
	"time"
)

// Outcome is the verdict of a run.
type Outcome string

// The outcomes. The first that applies counts, in the order FAILED clearing, INTERRUPTED by an operator, VOID, INTERRUPTED
// by a stop rule, FAILED hypothesis, PASSED.
const (
	Passed           Outcome = "PASSED"
	FailedHypothesis Outcome = "FAILED hypothesis"
	// FailedClearing: a fault could not be cleared, or its clearing was not verified. The hypothesis is not what failed.
	FailedClearing Outcome = "FAILED clearing"
	// Void: the machine was too busy, so that the run shows nothing. A void run never passes.
	Void Outcome = "VOID"
	// Interrupted: a stop rule or an operator ended the run.
	Interrupted Outcome = "INTERRUPTED"
)

// Bounds of the machine: the controller's timer is late when other work keeps the cores. Requests and probes are late by
// the same time, so figures measure the machine then.
const (
	// latenessBound is for the 99th percentile of the timer.
	latenessBound = 0.050
	// latenessWorst is for the worst one.
	latenessWorst = 1.0
)

// Check is one statement of the file and whether the run met it.
type Check struct {
	// Text is the statement as the file has it.
	Text string `json:"text"`
	// Measured is the figure in words; Holds whether it met the statement.
	Measured string `json:"measured"`
	Holds    bool   `json:"holds"`
	// Asks is set for what a person has to answer, such as a page: it is not judged.
	Asks bool `json:"asks,omitempty"`
}

// Verdict is the judgement of a run.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Why names what decided the outcome.
	Why string `json:"why"`
	// Hypothesis, Clearing and Machine are kept apart.
	Hypothesis []Check           `json:"hypothesis"`
	Clearing   []Check           `json:"clearing"`
	Machine    []Check           `json:"machine"`
	Ladder     *Ladder           `json:"ladder"`
	Invariants []InvariantResult `json:"invariants"`
	// Due counts the requests that were due from the first fault on, refused ones included; Harmed those of them without
	// a complete answer.
	Due    int             `json:"due"`
	Harmed []HarmedRequest `json:"harmed"`
	// Figures are the metrics by phase.
	Figures []PhaseFigure `json:"figures"`
	// WorstGap is the longest time from the fault on without an ended good answer, in seconds.
	WorstGap float64 `json:"worst_gap_s"`
}

// HarmedRequest is a request without a complete answer.
type HarmedRequest struct {
	ID      uint64  `json:"id"`
	Due     float64 `json:"due_s"`
	Region  string  `json:"region"`
	Tenant  string  `json:"tenant,omitempty"`
	Outcome string  `json:"outcome"`
	Code    string  `json:"code,omitempty"`
	Worker  string  `json:"worker,omitempty"`
}

// PhaseFigure is a metric in one phase; Missing if it has no value.
type PhaseFigure struct {
	Phase   RunPhase `json:"phase"`
	Metric  string   `json:"metric"`
	Value   float64  `json:"value"`
	Missing bool     `json:"missing,omitempty"`
}

// Judge judges a run from its log alone.
func Judge(f *DrillFile, l *EventLog) *Verdict {
	r := newRunFacts(f, l)
	v := &Verdict{Ladder: BuildLadder(f, l), Invariants: CheckInvariants(f, l)}
	v.addFigures(r)
	v.addConditions(r)
	v.addHarmed(r)
	v.addObjectives(r)
	v.addInvariants()
	v.addPages(r)
	v.addClearing(r)
	v.addMachine(r)
	v.decideOutcome(r)
	return v
}

func (v *Verdict) addFigures(r *runFacts) {
	for _, phase := range []RunPhase{PhaseBefore, PhaseDuring, PhaseAfter} {
		list := phaseRequests(r.file, r.requests, Slice{}, phase)
		for _, m := range metricTable {
			value, ok := m.measure(list)
			v.Figures = append(v.Figures, PhaseFigure{phase, m.name, value, !ok})
		}
	}
}

// FindFigure returns a metric of a phase; false: it has no value.
func (v *Verdict) FindFigure(p RunPhase, metric string) (float64, bool) {
	for _, f := range v.Figures {
		if f.Phase == p && f.Metric == metric {
			return f.Value, !f.Missing
		}
	}
	return 0, false
}

func (v *Verdict) addConditions(r *runFacts) {
	for i := range r.file.Conditions {
		c := &r.file.Conditions[i]
		m, _ := findMetric(c.Metric)
		value, ok := m.measure(phaseRequests(r.file, r.requests, c.Slice, c.Phase))
		check := Check{Text: c.String(), Measured: "no request to measure"}
		if ok {
			check.Measured, check.Holds = formatFigure(m, value), compareFigures(value, c.Op, c.Value)
		}
		if c.OfBefore && ok {
			before, had := m.measure(phaseRequests(r.file, r.requests, c.Slice, PhaseBefore))
			check.Measured = "nothing to compare with before the fault"
			if check.Holds = had && before > 0 && compareFigures(value/before, c.Op, c.Value); had && before > 0 {
				check.Measured = fmt.Sprintf("%s, %.1f %% of %s", formatFigure(m, value), 100*value/before, formatFigure(m, before))
			}
		}
		v.Hypothesis = append(v.Hypothesis, check)
	}
	for _, c := range r.file.Controls {
		m, _ := findMetric(c.Metric)
		check := Check{Text: fmt.Sprintf("control %s%s within %s", formatSlice(c.Slice), c.Metric, formatShare(c.Within)), Measured: "no request to measure"}
		if before, during, ok := r.compareSlice(c.Slice, c.Metric, r.fault, r.clear); ok {
			check.Measured = fmt.Sprintf("%s before, %s during (%+.1f %%)", formatFigure(m, before), formatFigure(m, during), 100*(during/before-1))
			check.Holds = withinShare(before, during, c.Within)
		}
		v.Hypothesis = append(v.Hypothesis, check)
	}
}

// formatFigure formats a value of a metric.
func formatFigure(m metricInfo, v float64) string {
	switch {
	case m.unit == "%":
		return fmt.Sprintf("%.2f %%", 100*v)
	case v < 1:
		return fmt.Sprintf("%.0f ms", 1000*v)
	}
	return fmt.Sprintf("%.2f s", v)
}

func (v *Verdict) addHarmed(r *runFacts) {
	last := r.fault
	for _, q := range selectRequests(r.requests, Slice{}, r.fault, 1<<62) {
		v.Due++
		if q.outcome != outcomeOK {
			v.Harmed = append(v.Harmed, HarmedRequest{q.id, q.due.Seconds(), q.region, q.tenant, q.outcome, q.code, q.worker})
		}
	}
	var ends []time.Duration
	for _, q := range r.requests { // one that was due before the fault may be harmed by it
		if q.due < r.fault && q.due >= r.file.Load.WarmUp && q.outcome != outcomeOK && q.end >= r.fault {
			v.Due++
			v.Harmed = append(v.Harmed, HarmedRequest{q.id, q.due.Seconds(), q.region, q.tenant, q.outcome, q.code, q.worker})
		}
		if q.good && q.end >= r.fault {
			ends = append(ends, q.end)
		}
	}
	slices.SortFunc(v.Harmed, func(a, b HarmedRequest) int { return int(a.ID) - int(b.ID) })
	slices.Sort(ends)
	for _, at := range ends {
		v.WorstGap = max(v.WorstGap, (at - last).Seconds())
		last = at
	}
	if b := r.file.Budget; b != nil {
		share := float64(len(v.Harmed)) / float64(max(v.Due, 1))
		check := Check{Text: "harmed <= " + formatBudget(b) + " of requests due", Measured: fmt.Sprintf("%d of %d (%.3f %%)", len(v.Harmed), v.Due, 100*share)}
		if check.Holds = share <= b.Share; b.IsCount {
			check.Holds = len(v.Harmed) <= b.Count
		}
		v.Hypothesis = append(v.Hypothesis, check)
	}
}

func (v *Verdict) addObjectives(r *runFacts) {
	for _, o := range r.file.Objectives {
		rung := v.Ladder.FindRung(o.Rung)
		check := Check{Text: fmt.Sprintf("rto %s <= %s", o.Rung, formatTime(o.Bound)), Measured: rung.Missing}
		if rung.Reached {
			check.Measured, check.Holds = fmt.Sprintf("%.1f s", rung.Seconds), rung.Seconds <= o.Bound.Seconds()
		}
		v.Hypothesis = append(v.Hypothesis, check)
	}
}

func (v *Verdict) addInvariants() {
	held, broken := 0, ""
	for _, in := range v.Invariants {
		switch in.Status {
		case InvariantHeld:
			held++
		case InvariantBroken:
			if broken != "" {
				broken += "; "
			}
			broken += in.ID + ": " + in.First
		}
	}
	check := Check{Text: "every invariant that can be observed holds", Measured: fmt.Sprintf("%d held", held), Holds: broken == "" && held > 0}
	if broken != "" {
		check.Measured += "; broken: " + broken
	}
	v.Hypothesis = append(v.Hypothesis, check)
}

func (v *Verdict) addPages(r *runFacts) {
	for _, a := range r.file.Pages {
		check := Check{Text: "page " + a.Alert + " within " + formatTime(a.Within), Measured: "not observable here: tick it by hand", Holds: true, Asks: true}
		if r.log.CanObserve(PageSeen) {
			check.Asks, check.Holds, check.Measured = false, false, "it did not fire"
			if e, ok := r.log.findFirst(PageSeen, r.fault, func(e *Event) bool { return e.Node == a.Alert }); ok {
				check.Measured, check.Holds = fmt.Sprintf("after %.1f s", (e.At-r.fault).Seconds()), e.At-r.fault <= a.Within
			}
		}
		v.Hypothesis = append(v.Hypothesis, check)
	}
}

// addClearing checks that every injected step was cleared and that a probe verified it.
func (v *Verdict) addClearing(r *runFacts) {
	for i := range r.file.Steps {
		var injected, cleared, verified, remains *Event
		for k := range r.log.Events {
			e := &r.log.Events[k]
			if e.Number != uint64(i) {
				continue
			}
			switch e.Kind {
			case FaultInjected:
				injected = e
			case FaultCleared:
				cleared = e
			case FaultVerified:
				verified = e
			case FaultRemains:
				remains = e
			}
		}
		if injected == nil {
			continue
		}
		check := Check{Text: r.file.Steps[i].describeFault(), Holds: verified != nil}
		switch {
		case verified != nil && cleared != nil:
			check.Measured = fmt.Sprintf("cleared at %.1f s, verified %.1f s later: %s", cleared.At.Seconds(), (verified.At - cleared.At).Seconds(), verified.Text)
		case remains != nil:
			check.Measured = "it remains: " + remains.Text
		case cleared == nil:
			check.Measured = "it was never cleared by the controller"
		default:
			check.Measured = "its clearing was not verified"
		}
		v.Clearing = append(v.Clearing, check)
	}
}

func (v *Verdict) addMachine(r *runFacts) {
	if !r.log.CanObserve(MachineLate) {
		v.Machine = append(v.Machine, Check{Text: "the machine is quiet", Measured: "virtual time: no machine is involved", Holds: true})
		return
	}
	var all []float64
	r.eachEvent(MachineLate, func(e *Event) { all = append(all, e.Value) })
	check := Check{Text: fmt.Sprintf("the controller's timer is late by at most %.0f ms (p99) and %.0f s (worst)", 1000*latenessBound, latenessWorst), Measured: "no timer was measured"}
	if len(all) > 0 {
		slices.Sort(all)
		p99, worst := all[min(len(all)*99/100, len(all)-1)], all[len(all)-1]
		check.Measured, check.Holds = fmt.Sprintf("p99 %.1f ms, worst %.1f ms of %d", 1000*p99, 1000*worst, len(all)), p99 <= latenessBound && worst <= latenessWorst
	}
	v.Machine = append(v.Machine, check)
}

func (v *Verdict) decideOutcome(r *runFacts) {
	firstFailed := func(list []Check) string {
		for _, c := range list {
			if !c.Holds {
				return c.Text + ": " + c.Measured
			}
		}
		return ""
	}
	stop, stopped := r.log.findFirst(RunStopped, 0, nil)
	injected := 0
	r.eachEvent(FaultInjected, func(*Event) { injected++ })
	switch {
	case firstFailed(v.Clearing) != "":
		v.Outcome, v.Why = FailedClearing, firstFailed(v.Clearing)
	case stopped && stop.Code != byStopRule:
		v.Outcome, v.Why = Interrupted, stop.Text
	case firstFailed(v.Machine) != "":
		v.Outcome, v.Why = Void, firstFailed(v.Machine)
	case stopped:
		v.Outcome, v.Why = Interrupted, stop.Text
	case injected < len(r.file.Steps):
		v.Outcome, v.Why = Interrupted, fmt.Sprintf("only %d of %d steps were injected", injected, len(r.file.Steps))
	case firstFailed(v.Hypothesis) != "":
		v.Outcome, v.Why = FailedHypothesis, firstFailed(v.Hypothesis)
	default:
		v.Outcome, v.Why = Passed, "every statement of the file holds"
	}
}
