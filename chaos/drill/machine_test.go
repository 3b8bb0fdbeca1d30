package drill

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// playMachine runs a machine with a controller that does what it asks; answer gives the controller's event, nil for none.
func playMachine(m *Machine, until time.Duration, answer func(now time.Duration, a Action) *Event) (actions []string, states []RunState) {
	for now := time.Duration(0); now <= until; now += 100 * time.Millisecond {
		for _, a := range m.Advance(now) {
			if a.Kind == ActionEnd {
				return actions, append(states, m.State())
			}
			actions = append(actions, fmt.Sprintf("%s %d", a.Kind, a.Step))
			if e := answer(now, a); e != nil {
				m.ObserveEvent(e)
			}
		}
		if n := len(states); n == 0 || states[n-1] != m.State() {
			states = append(states, m.State())
		}
	}
	return actions, states
}

// obedient answers every action at once.
func obedient(now time.Duration, a Action) *Event {
	kind := map[ActionKind]EventKind{ActionInject: FaultInjected, ActionClear: FaultCleared, ActionVerify: FaultVerified}[a.Kind]
	if kind == "" {
		return nil
	}
	return &Event{At: now, Kind: kind, Number: uint64(a.Step)}
}

// TestMachineRunsAStep: a step is injected, renewed, cleared and verified, in that order and at its times.
func TestMachineRunsAStep(t *testing.T) {
	f := testDrill()
	f.Steps[0].For = 5 * second
	actions, states := playMachine(NewMachine(f), time.Hour, obedient)
	if want := []string{"inject 0", "renew 0", "renew 0", "clear 0", "verify 0"}; !slices.Equal(actions, want) {
		t.Errorf("actions %q, want %q", actions, want)
	}
	if want := []RunState{StateSteady, StateInjected, StateClearing, StateRecovered, StateEnded}; !slices.Equal(states, want) {
		t.Errorf("states %q, want %q", states, want)
	}
}

// TestMachineRepeatsTheProbe: a fault that a probe still finds is probed again for verifyFor and then given up; the run does not hang.
func TestMachineRepeatsTheProbe(t *testing.T) {
	m := NewMachine(testDrill())
	actions, states := playMachine(m, time.Hour, func(now time.Duration, a Action) *Event {
		if a.Kind == ActionVerify {
			return &Event{At: now, Kind: FaultRemains, Number: 0, Text: "still there"}
		}
		return obedient(now, a)
	})
	probes := 0
	for _, a := range actions {
		if a == "verify 0" {
			probes++
		}
	}
	if want := int(verifyFor/verifyRetry) + 1; probes != want || states[len(states)-1] != StateEnded {
		t.Errorf("%d probes, want %d, and the end state %s", probes, want, states[len(states)-1])
	}
}

// TestStopRuleEndsTheRun: a stop rule clears what is injected, skips what is not, and is never resumed.
func TestStopRuleEndsTheRun(t *testing.T) {
	f := testDrill(Step{Kind: fault.LeaderDead}, Step{Kind: fault.GlobalDead})
	f.Steps[1].At = 60 * second
	f.Stops = []StopRule{{"goodput", "<", .5, 5 * second}}
	m := NewMachine(f)
	id := uint64(0)
	var actions []string
	for now := time.Duration(0); now < 150*second && m.State() != StateEnded; now += 100 * time.Millisecond {
		id++
		m.ObserveEvent(&Event{At: now, Kind: RequestDue, Request: id})
		m.ObserveEvent(&Event{At: now, Kind: RequestEnded, Request: id, Text: "refused", Good: now < 51*second})
		for _, a := range m.Advance(now) {
			actions = append(actions, fmt.Sprintf("%s %d", a.Kind, a.Step))
			if e := obedient(now, a); e != nil {
				m.ObserveEvent(e)
			}
		}
	}
	if want := []string{"inject 0", "renew 0", "clear 0", "verify 0", "end 0"}; !slices.Equal(actions, want) || m.StopReason() == "" {
		t.Errorf("actions %q, stopped by %q, want %q", actions, m.StopReason(), want)
	}
}

// TestEveryInjectedStepIsCleared: for any events at any time, every injected step is cleared and probed before the run ends.
func TestEveryInjectedStepIsCleared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := testDrill(make([]Step, rapid.IntRange(1, 4).Draw(t, "steps"))...)
		for i := range f.Steps {
			f.Steps[i].At = time.Duration(rapid.IntRange(20, 90).Draw(t, "at")) * second
			f.Steps[i].For = time.Duration(rapid.IntRange(1, 40).Draw(t, "for")) * second
		}
		m := NewMachine(f)
		stopAt := time.Duration(rapid.IntRange(0, 200).Draw(t, "stop")) * second
		open := map[int]bool{}
		ended := false
		for now := time.Duration(0); now < 400*second && !ended; now += 200 * time.Millisecond {
			if now == stopAt {
				m.StopRun("drawn")
			}
			for _, a := range m.Advance(now) {
				e := obedient(now, a)
				switch a.Kind {
				case ActionInject:
					open[a.Step] = true
					if m.StopReason() != "" {
						t.Fatal("a step is injected after the stop")
					}
					if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
						e.Kind = FaultFailed
					}
				case ActionVerify:
					if rapid.IntRange(0, 3).Draw(t, "remains") == 0 {
						e.Kind = FaultRemains
					} else {
						delete(open, a.Step)
					}
				case ActionEnd:
					ended = true
				}
				if e != nil {
					m.ObserveEvent(e)
				}
			}
		}
		if !ended {
			t.Fatalf("the run does not end: state %s", m.State())
		}
		for i := range open {
			if m.steps[i].phase != stepRemains {
				t.Fatalf("step %d was injected and its clearing was not verified", i)
			}
		}
	})
}
