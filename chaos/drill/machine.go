package drill

import (
	"fmt"
	"time"
)

// RunState is the state of a run.
type RunState string

// The states of a run, in order. Aborted runs go from steady or injected to clearing.
const (
	StatePlanned   RunState = "planned"
	StateSteady    RunState = "steady"
	StateInjected  RunState = "injected"
	StateClearing  RunState = "clearing"
	StateRecovered RunState = "recovered"
	StateEnded     RunState = "ended"
)

// ActionKind is what a controller has to do.
type ActionKind string

// The actions. Step is the step that they are about, except for ActionEnd.
const (
	ActionInject ActionKind = "inject"
	ActionRenew  ActionKind = "renew"
	ActionClear  ActionKind = "clear"
	ActionVerify ActionKind = "verify"
	ActionEnd    ActionKind = "end"
)

// Action is one action for the controller.
type Action struct {
	Kind ActionKind
	Step int
}

// Times of a controller.
const (
	// LeaseTime is the lease of an injected fault: how long it outlives a controller that was killed. RenewInterval is a
	// third of it, so that two lost renewals end no fault.
	LeaseTime     = 6 * time.Second
	RenewInterval = LeaseTime / 3
	// verifyRetry is the time between two probes of a fault that is not gone yet, and verifyFor how long they are repeated:
	// a killed process is started again and has to come up.
	verifyRetry = time.Second
	verifyFor   = 30 * time.Second
	// minStopWindow is the shortest time over which a stop rule is judged, and minStopRequests the fewest requests.
	minStopWindow   = time.Second
	minStopRequests = 5
)

// stepPhase is where a step of a run is.
type stepPhase uint8

const (
	stepWaiting stepPhase = iota
	stepActive
	stepClearing
	stepVerified
	stepRemains // verification failed for verifyFor
	stepSkipped // the run was stopped before it
)

type stepState struct {
	phase      stepPhase
	renewAt    time.Duration
	verifyAt   time.Duration
	clearedAt  time.Duration
	isInjected bool
}

// Machine is a run as a state machine. It takes the time since the start and the events so far, and returns what the
// controller has to do. It does nothing itself.
type Machine struct {
	file  *DrillFile
	state RunState
	steps []stepState
	// stopped is why the run ends early; empty: it does not.
	stopped string
	window  []*requestRecord // ended requests for stop rules, in order of their ends
	open    map[uint64]*requestRecord
	changes []Event
	now     time.Duration
}

// NewMachine returns a run that has not begun.
func NewMachine(f *DrillFile) *Machine {
	return &Machine{file: f, state: StatePlanned, steps: make([]stepState, len(f.Steps)), open: map[uint64]*requestRecord{}}
}

// State is the present state.
func (m *Machine) State() RunState { return m.state }

// StopReason is why the run ends early; empty: it does not.
func (m *Machine) StopReason() string { return m.stopped }

// TakeChanges returns the machine's own events since the last call, for the log.
func (m *Machine) TakeChanges() []Event {
	out := m.changes
	m.changes = nil
	return out
}

// ObserveEvent notes an event. Events come in the order in which the controller gets them.
func (m *Machine) ObserveEvent(e *Event) {
	switch e.Kind {
	case RequestDue:
		m.open[e.Request] = &requestRecord{id: e.Request, due: e.At}
	case RequestEnded:
		if r := m.open[e.Request]; r != nil {
			delete(m.open, e.Request)
			r.end, r.outcome, r.ttft, r.tpot, r.good = e.At, e.Text, e.TTFT, e.TPOT, e.Good
			m.window = append(m.window, r)
		}
	case FaultInjected, FaultFailed, FaultVerified, FaultRemains:
		m.observeFault(e)
	}
}

func (m *Machine) observeFault(e *Event) {
	if e.Number >= uint64(len(m.steps)) {
		return
	}
	s := &m.steps[e.Number]
	switch {
	case e.Kind == FaultInjected:
		s.isInjected, s.renewAt = true, e.At+RenewInterval
	case e.Kind == FaultFailed:
		m.StopRun("step " + fmt.Sprint(e.Number+1) + " could not be injected: " + e.Text)
	case s.phase != stepClearing:
	case e.Kind == FaultVerified:
		s.phase = stepVerified
	case e.At >= s.clearedAt+verifyFor:
		s.phase = stepRemains
	default:
		s.verifyAt = e.At + verifyRetry
	}
}

// StopRun ends the run early. Faults are cleared and verified first. A run that was stopped is never resumed.
func (m *Machine) StopRun(reason string) { m.stopAs(reason, "") }

// stopAs ends the run early. code is byStopRule for a rule of the file.
func (m *Machine) stopAs(reason, code string) {
	if m.stopped == "" && m.state != StateEnded {
		m.stopped = reason
		m.changes = append(m.changes, Event{At: m.now, Kind: RunStopped, Text: reason, Code: code})
	}
}

// byStopRule is the code of RunStopped for a rule of the file, which judges figures that a busy machine changes.
const byStopRule = "rule"

// Advance moves the run to a time and returns the actions that are due: at most one injection, so that a step that cannot
// be injected stops those of the same time. Call it again with the same time after an injection.
func (m *Machine) Advance(now time.Duration) (out []Action) {
	m.now = now
	if m.state == StatePlanned {
		m.setState(StateSteady)
	}
	if m.stopped == "" {
		m.checkStops(now)
	}
	injects := false
	for i := range m.steps {
		if injects && m.steps[i].phase == stepWaiting {
			continue
		}
		if a, ok := m.advanceStep(i, now); ok {
			out = append(out, a)
			injects = injects || a.Kind == ActionInject
		}
	}
	m.updateState(now)
	if m.state == StateEnded {
		out = append(out, Action{Kind: ActionEnd})
	}
	return out
}

func (m *Machine) advanceStep(i int, now time.Duration) (Action, bool) {
	s, step := &m.steps[i], &m.file.Steps[i]
	switch s.phase {
	case stepWaiting:
		if m.stopped != "" {
			s.phase = stepSkipped
		} else if now >= step.At {
			s.phase, s.renewAt = stepActive, now+RenewInterval
			return Action{ActionInject, i}, true
		}
	case stepActive:
		if m.stopped != "" || now >= step.End() {
			s.phase, s.clearedAt, s.verifyAt = stepClearing, now, now
			return Action{ActionClear, i}, true
		}
		if now >= s.renewAt && s.isInjected {
			s.renewAt = now + RenewInterval
			return Action{ActionRenew, i}, true
		}
	case stepClearing:
		if now >= s.verifyAt {
			s.verifyAt = now + verifyFor // until the result of this one is observed
			return Action{ActionVerify, i}, true
		}
	}
	return Action{}, false
}

// updateState derives the run's state from its steps.
func (m *Machine) updateState(now time.Duration) {
	var waiting, active, clearing int
	for i := range m.steps {
		switch m.steps[i].phase {
		case stepWaiting:
			waiting++
		case stepActive:
			active++
		case stepClearing:
			clearing++
		}
	}
	switch {
	case active > 0:
		m.setState(StateInjected)
	case clearing > 0:
		m.setState(StateClearing)
	case waiting > 0:
		m.setState(StateSteady)
	case m.stopped != "" || now >= m.file.Load.Duration:
		m.setState(StateEnded)
	default:
		m.setState(StateRecovered)
	}
}

func (m *Machine) setState(s RunState) {
	if m.state != s {
		m.state = s
		m.changes = append(m.changes, Event{At: m.now, Kind: RunStateChanged, Text: string(s)})
	}
}

// checkStops judges the stop rules by the requests that ended in their last window.
func (m *Machine) checkStops(now time.Duration) {
	longest := time.Duration(0)
	for i := range m.file.Stops {
		longest = max(longest, m.file.Stops[i].For)
	}
	for len(m.window) > 0 && m.window[0].end < now-longest {
		m.window = m.window[1:]
	}
	for i := range m.file.Stops {
		rule := &m.file.Stops[i]
		metric, _ := findMetric(rule.Metric)
		var list []*requestRecord
		for _, r := range m.window {
			if r.end >= now-rule.For && r.end <= now {
				list = append(list, r)
			}
		}
		if now < m.file.Load.WarmUp+rule.For || len(list) < minStopRequests {
			continue
		}
		if v, ok := metric.measure(list); ok && compareFigures(v, rule.Op, rule.Value) {
			m.stopAs(fmt.Sprintf("stop rule: %s; it is %s", formatStopRule(rule), formatFigure(metric, v)), byStopRule)
		}
	}
}

// compareFigures evaluates a condition.
func compareFigures(v float64, op string, bound float64) bool {
	switch op {
	case ">=":
		return v >= bound
	case "<=":
		return v <= bound
	case ">":
		return v > bound
	}
	return v < bound
}
