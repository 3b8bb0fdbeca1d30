package global

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

// TestDecideSwitchStep tests what each step waits for, and what aborts a switch.
func TestDecideSwitchStep(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	drained := switchView{drained: true, inFlight: -1}
	for _, c := range []struct {
		name     string
		step     consensus.SwitchStep
		practice bool
		after    time.Duration
		change   func(v *switchView)
		want     consensus.SwitchStep
		note     string
	}{
		{name: "half shifted", step: consensus.SwitchShift, change: func(v *switchView) { v.remaining = 0.5 }},
		{name: "shifted", step: consensus.SwitchShift, want: consensus.SwitchVerify, note: "no new client is sent to tokyo"},
		{name: "undrained by an operator", step: consensus.SwitchShift, change: func(v *switchView) { v.drained = false }, want: consensus.SwitchAborted, note: "the drain of tokyo has ended in step shift"},
		{name: "a short problem", step: consensus.SwitchHold, change: func(v *switchView) { v.problem, v.problemIs = "virginia is unreachable", 14*time.Second }},
		{name: "a long problem", step: consensus.SwitchHold, change: func(v *switchView) { v.problem, v.problemIs = "virginia is unreachable", 15*time.Second }, want: consensus.SwitchAborted, note: "virginia is unreachable for 15s in step hold"},
		{name: "still answered", step: consensus.SwitchVerify, change: func(v *switchView) { v.answers = 3 }},
		{name: "verified", step: consensus.SwitchVerify, want: consensus.SwitchDrain, note: "no DNS answer names tokyo"},
		{name: "not verified in presence of a problem", step: consensus.SwitchVerify, change: func(v *switchView) { v.problem = "virginia is drained" }},
		{name: "never verified", step: consensus.SwitchVerify, after: switchVerifyTimeout, change: func(v *switchView) { v.answers = 3 }, want: consensus.SwitchAborted, note: "still answers 3 cells with tokyo"},
		{name: "requests in flight", step: consensus.SwitchDrain, change: func(v *switchView) { v.inFlight = 2 }},
		{name: "none in flight", step: consensus.SwitchDrain, change: func(v *switchView) { v.inFlight = 0 }, want: consensus.SwitchHold, note: "no request is in flight at tokyo"},
		{name: "in flight for too long", step: consensus.SwitchDrain, after: switchDrainTimeout, change: func(v *switchView) { v.inFlight = 2 }, want: consensus.SwitchHold, note: "2 requests are still in flight"},
		{name: "silent", step: consensus.SwitchDrain, after: switchDrainTimeout, want: consensus.SwitchHold, note: "does not report"},
		{name: "held", step: consensus.SwitchHold, after: 59 * time.Second},
		{name: "held long enough", step: consensus.SwitchHold, after: time.Minute, want: consensus.SwitchDone, note: "spillway undrain region tokyo"},
		{name: "a practice held long enough", practice: true, step: consensus.SwitchHold, after: time.Minute, want: consensus.SwitchBack, note: "empty for 1m0s"},
		{name: "not back", practice: true, step: consensus.SwitchBack, change: func(v *switchView) { v.drained = false }},
		{name: "back", practice: true, step: consensus.SwitchBack, change: func(v *switchView) { v.drained, v.answers = false, 1 }, want: consensus.SwitchDone, note: "name tokyo again"},
		{name: "never back", practice: true, step: consensus.SwitchBack, after: switchBackTimeout, change: func(v *switchView) { v.drained = false }, want: consensus.SwitchDone, note: "spillway explain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := drained
			if v.now = at.Add(c.after); c.change != nil {
				c.change(&v)
			}
			g := &consensus.RegionSwitch{From: "tokyo", Step: c.step, StepAt: at, SwitchConfig: consensus.SwitchConfig{To: "virginia", Practice: c.practice, Hold: time.Minute}}
			if d := decideSwitchStep(g, &v); d.next != c.want || !strings.Contains(d.note, c.note) || (d.note == "") != (c.want == "") {
				t.Errorf("next %q (%s), want %q (%s)", d.next, d.note, c.want, c.note)
			}
		})
	}
}

// TestSwitchAlwaysEnds: with any observations, a switch whose time passes ends within the sum of its bounds, and a
// practice never ends before its drain did.
func TestSwitchAlwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
		over := time.Duration(rapid.IntRange(0, 10).Draw(t, "over")) * time.Minute
		g := &consensus.RegionSwitch{
			From: "tokyo", Step: consensus.SwitchShift, StepAt: at,
			SwitchConfig: consensus.SwitchConfig{To: "virginia", Practice: rapid.Bool().Draw(t, "practice"), Hold: time.Duration(rapid.IntRange(0, 10).Draw(t, "hold")) * time.Minute},
		}
		drained := true
		for now := at; g.IsActive(); now = now.Add(30 * time.Second) {
			if now.Sub(at) > over+g.Hold+switchVerifyTimeout+switchDrainTimeout+switchBackTimeout+5*time.Minute {
				t.Fatalf("after %s the switch is in step %s", now.Sub(at), g.Step)
			}
			v := &switchView{now: now, drained: drained, inFlight: rapid.Int64Range(-1, 2).Draw(t, "in flight"), answers: rapid.IntRange(0, 2).Draw(t, "answers")}
			if now.Before(at.Add(over)) {
				v.remaining = 0.5
			}
			if d := decideSwitchStep(g, v); d.next != "" {
				g.Step, g.StepAt = d.next, now
				drained = drained && d.next != consensus.SwitchBack && d.next != consensus.SwitchAborted
			}
		}
		if g.Practice && drained {
			t.Fatal("a practice has ended and its region is drained")
		}
	})
}

// TestSwitchTargetProblems: a target needs reports, ready workers and capacity for both regions.
func TestSwitchTargetProblems(t *testing.T) {
	v := newStaticSnapshot(t)
	if got := checkSwitchTarget(v, "tokyo", "virginia"); len(got) != 0 {
		t.Errorf("an idle fleet: %v", got)
	}
	if got := findTargetProblem(v, "atlantis"); got != "atlantis is not in the spec" {
		t.Errorf("%q", got)
	}
	virginia := v.RegionIndex("virginia")
	v.Regions[virginia].Group.Summary.FindModel("m1").Ready = 0
	if got := checkSwitchTarget(v, "tokyo", "virginia"); len(got) != 1 || got[0] != "virginia has no ready worker for m1" {
		t.Errorf("without workers: %v", got)
	}
	v.Regions[virginia].Group.State = capacity.Unreachable
	if got := checkSwitchTarget(v, "tokyo", "virginia"); len(got) != 1 || got[0] != "virginia is unreachable" {
		t.Errorf("unreachable: %v", got)
	}
}

// TestSwitchGoesOnUnderTheNextLeader practices a switch and stops the leader while requests are in flight: the next
// leader takes the remaining steps, and afterwards every client has its own region.
func TestSwitchGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client has its own region", p.allNearest)
	leader := p.awaitLeader()
	var c *admin.Client
	for _, s := range p.nodes {
		if s != leader {
			c = p.adminClient(s)
		}
	}
	step := func() string {
		a, err := c.GetSwitch(t.Context())
		if err != nil || a.Switch == nil {
			return ""
		}
		return a.Switch.Step
	}
	check, err := c.ChangeSwitch(t.Context(), admin.SwitchRequest{From: "tokyo", To: "virginia", Practice: true, DryRun: true})
	if err != nil || check.Switch != nil || len(check.Problems) > 0 || check.Impact.RegionsLeft != 2 {
		t.Fatalf("dry run: %+v, %v", check, err)
	}
	r := admin.SwitchRequest{From: "tokyo", To: "virginia", Practice: true, OverMS: 1000, HoldMS: 500, Reason: "quarterly"}
	a, err := c.ChangeSwitch(t.Context(), r)
	if err != nil || a.Switch == nil || !a.Switch.Active || !a.Switch.Drained {
		t.Fatalf("%+v, %v", a, err)
	}
	number := a.Switch.Number
	if _, err := c.ChangeSwitch(t.Context(), r); err == nil {
		t.Error("a second switch starts")
	}
	testkit.Eventually(t, "requests in flight are waited for", func() bool { return step() == "drain" })
	if p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") {
		t.Error("clients are sent to the region that is being emptied")
	}
	p.stopNode(leader)
	p.gateways["tokyo"].idle.Store(true)
	testkit.Eventually(t, "the next leader ends the practice", func() bool { return step() == "done" })
	a, err = c.GetSwitch(t.Context())
	if err != nil || a.Switch.Number != number || a.Switch.Active || a.Switch.Drained || !strings.Contains(a.Switch.Note, "name tokyo again") {
		t.Errorf("%+v, %v", a.Switch, err)
	}
	testkit.Eventually(t, "each client has its own region again", p.allNearest)
	audit, err := c.ListAudit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, x := range audit.Records {
		if strings.HasPrefix(x.Action, "switch") {
			steps = append(steps, strings.TrimSpace(strings.TrimPrefix(x.Action, "switch")))
		}
	}
	if got := strings.Join(steps, " "); got != " verify drain hold back done" {
		t.Errorf("the audit has the steps %q", got)
	}
	if _, err := c.ChangeSwitch(t.Context(), admin.SwitchRequest{Abort: true}); err == nil {
		t.Error("a switch that has ended is aborted")
	}
}
