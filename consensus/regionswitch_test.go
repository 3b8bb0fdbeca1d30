package consensus

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// startOf is the command that starts a switch from us.
func startOf(practice bool, at time.Time) command {
	c := command{Kind: kindStartSwitch, Path: "us", Over: time.Minute, Actor: "alice", Reason: "power", At: at, Switch: &SwitchConfig{To: "eu", Practice: practice, Hold: time.Minute}}
	if practice {
		c.Until = at.Add(time.Hour)
	}
	return c
}

func stepOf(g *RegionSwitch, next SwitchStep, at time.Time) command {
	return command{Kind: kindStepSwitch, BasedOn: g.Number, Path: string(g.Step), Action: string(next), Actor: "g1", Reason: "found", At: at}
}

// TestSwitchSteps walks through both kinds of switches: the drain is in force from the first step, and ends with the
// step back and with an abort.
func TestSwitchSteps(t *testing.T) {
	for _, c := range []struct {
		practice bool
		steps    []SwitchStep
		drained  bool // at the end
	}{
		{false, []SwitchStep{SwitchVerify, SwitchDrain, SwitchHold, SwitchDone}, true},
		{true, []SwitchStep{SwitchVerify, SwitchDrain, SwitchHold, SwitchBack, SwitchDone}, false},
		{true, []SwitchStep{SwitchVerify, SwitchAborted}, false},
		{false, []SwitchStep{SwitchAborted}, false},
	} {
		s, r := applyOne(t, &State{}, startOf(c.practice, noon))
		if _, found := s.findDrain("us"); r.Code != codeOK || !found || s.Switch.Number != 1 || s.Drains[0].Over != time.Minute || (s.Drains[0].Drill != "") != c.practice {
			t.Fatalf("%+v: %+v, %+v", r, s.Switch, s.Drains)
		}
		if _, r := applyOne(t, s, startOf(c.practice, noon)); r.Code != codeRefused || !strings.Contains(r.Message, "is in progress (step shift)") {
			t.Errorf("a second switch: %+v", r)
		}
		if _, r := applyOne(t, s, drainFor(s, "us", noon)); r.Code != codeRefused || !strings.Contains(r.Message, "spillway switch abort") {
			t.Errorf("a drain of the switched region: %+v", r)
		}
		for i, next := range c.steps {
			stale := stepOf(s.Switch, next, noon)
			other := stale
			other.Path = "other"
			if _, r := applyOne(t, s, other); next != SwitchAborted && r.Code != codeRefused {
				t.Errorf("step %s is taken from a step that is not the present one", next)
			}
			if s, r = applyOne(t, s, stale); r.Code != codeOK || s.Switch.Step != next || s.Switch.Note != "found" {
				t.Fatalf("step %s: %+v, %+v", next, r, s.Switch)
			}
			if _, r := applyOne(t, s, stale); r.Code != codeRefused {
				t.Errorf("step %d is taken twice: %+v", i, r)
			}
		}
		if _, found := s.findDrain("us"); found != c.drained || s.Switch.IsActive() {
			t.Errorf("practice %v, after %v: drained %v, step %s", c.practice, c.steps, found, s.Switch.Step)
		}
		if last := s.Audit[len(s.Audit)-1]; !strings.HasPrefix(last.Action, "switch ") || !strings.HasPrefix(last.Subject, "us to eu") {
			t.Errorf("audited as %+v", last)
		}
		if _, r := applyOne(t, s, startOf(false, noon)); (r.Code == codeOK) == c.drained {
			t.Errorf("the next switch: %+v", r)
		}
	}
}

// TestStopAllEndsSwitch: stop-all ends a practice and its drain. Of a planned move it ends the progress, and the
// clients stay where they are.
func TestStopAllEndsSwitch(t *testing.T) {
	for _, practice := range []bool{false, true} {
		s, _ := applyOne(t, &State{}, startOf(practice, noon))
		s, r := applyOne(t, s, command{Kind: kindStopLever, Action: actionStopAll, Reason: "incident", At: noon})
		if _, found := s.findDrain("us"); r.Code != codeOK || s.Switch.Step != SwitchAborted || s.Switch.Note != "stop-all: incident" || found == practice {
			t.Errorf("practice %v: %+v, drained %v", practice, s.Switch, found)
		}
		if _, r := applyOne(t, s, startOf(practice, noon)); r.Code != codeRefused {
			t.Errorf("a switch starts while all is stopped: %+v", r)
		}
	}
}

// TestSwitchKeepsInvariants applies random entries: no two switches overlap, steps only go on, and the region of a
// practice that has ended is not drained by it.
func TestSwitchKeepsInvariants(t *testing.T) {
	steps := []SwitchStep{SwitchShift, SwitchVerify, SwitchDrain, SwitchHold, SwitchBack, SwitchDone, SwitchAborted}
	rapid.Check(t, func(t *rapid.T) {
		s, at := &State{}, noon
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			at = at.Add(time.Minute)
			var c command
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0, 1:
				c = startOf(rapid.Bool().Draw(t, "practice"), at)
			case 2:
				c = command{Kind: kindDeleteDrain, Path: "us", At: at}
			case 3:
				c = command{Kind: kindStopLever, Action: rapid.SampledFrom([]string{actionStopAll, actionAllow, actionAllow}).Draw(t, "lever"), Reason: "x", At: at}
			case 4:
				c = drainFor(s, rapid.SampledFrom([]string{"ap", "us"}).Draw(t, "path"), at)
			default:
				g := s.Switch
				if g == nil {
					g = &RegionSwitch{Number: 9, Step: SwitchShift}
				}
				next := rapid.SampledFrom(steps).Draw(t, "step")
				if at := indexOf(steps, g.Step); rapid.Bool().Draw(t, "legal") && at+1 < len(steps) {
					next = steps[at+1]
				}
				c = stepOf(g, next, at)
			}
			next, r := applyOne(t, s, c)
			if g := s.Switch; r.Code == codeOK && g.IsActive() {
				if next.Switch.Number != g.Number || indexOf(steps, next.Switch.Step) < indexOf(steps, g.Step) {
					t.Fatalf("%+v became %+v", g, next.Switch)
				}
			}
			for _, d := range next.Drains {
				if strings.HasPrefix(d.Drill, "switch-") && (!next.Switch.IsActive() || next.Switch.Step == SwitchBack) {
					t.Fatalf("the practice is %s and %s is drained by it", next.Switch.Step, d.Path)
				}
			}
			s = next
		}
		checkRoundTrip(t, s)
	})
}

func indexOf(steps []SwitchStep, step SwitchStep) int {
	for i := range steps {
		if steps[i] == step {
			return i
		}
	}
	return -1
}
