package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// switchView is what the leader observes of a switch in progress.
type switchView struct {
	now       time.Time     // wall time, as of the steps
	drained   bool          // the region's drain is in force
	remaining float64       // share of new traffic that the region still gets
	answers   int           // sampled cells that DNS answers with the region
	inFlight  int64         // requests in flight at the region; -1: not reported
	problem   string        // why the target cannot serve; empty: it can
	problemIs time.Duration // for how long there has been a problem
}

// switchDecision is the next step of a switch with what was found; an empty step: stay.
type switchDecision struct {
	next consensus.SwitchStep
	note string
}

// decideSwitchStep returns the next step of a switch. It depends on replicated state and present observations only, so
// the next leader continues where the last one stopped.
func decideSwitchStep(g *consensus.RegionSwitch, v *switchView) switchDecision {
	since := v.now.Sub(g.StepAt)
	if g.Step == consensus.SwitchBack {
		return decideSwitchBack(g, v, since)
	}
	switch {
	case !v.drained:
		return switchDecision{consensus.SwitchAborted, fmt.Sprintf("the drain of %s has ended in step %s: its clients return", g.From, g.Step)}
	case v.problem != "" && v.problemIs >= switchProblemTolerance:
		return switchDecision{consensus.SwitchAborted, fmt.Sprintf("%s for %s in step %s: the clients of %s return", v.problem, v.problemIs.Round(time.Second), g.Step, g.From)}
	}
	switch g.Step {
	case consensus.SwitchShift:
		if v.remaining <= 0 {
			return switchDecision{consensus.SwitchVerify, fmt.Sprintf("no new client is sent to %s", g.From)}
		}
	case consensus.SwitchVerify:
		switch {
		case v.problem == "" && v.answers == 0:
			return switchDecision{consensus.SwitchDrain, fmt.Sprintf("%s serves, and no DNS answer names %s", g.To, g.From)}
		case since >= switchVerifyTimeout:
			return switchDecision{consensus.SwitchAborted, fmt.Sprintf("after %s DNS still answers %d cells with %s: its clients return", switchVerifyTimeout, v.answers, g.From)}
		}
	case consensus.SwitchDrain:
		switch {
		case v.inFlight == 0:
			return switchDecision{consensus.SwitchHold, fmt.Sprintf("no request is in flight at %s", g.From)}
		case since >= switchDrainTimeout && v.inFlight < 0:
			return switchDecision{consensus.SwitchHold, fmt.Sprintf("%s does not report its requests in flight", g.From)}
		case since >= switchDrainTimeout:
			return switchDecision{consensus.SwitchHold, fmt.Sprintf("%d requests are still in flight at %s after %s", v.inFlight, g.From, switchDrainTimeout)}
		}
	case consensus.SwitchHold:
		switch {
		case since < g.Hold:
		case g.Practice:
			return switchDecision{consensus.SwitchBack, fmt.Sprintf("%s was empty for %s", g.From, g.Hold)}
		default:
			return switchDecision{consensus.SwitchDone, fmt.Sprintf("%s stays drained: `spillway undrain region %s` brings its clients back", g.From, g.From)}
		}
	}
	return switchDecision{}
}

// decideSwitchBack waits until the region has clients again after a practice.
func decideSwitchBack(g *consensus.RegionSwitch, v *switchView, since time.Duration) switchDecision {
	switch {
	case v.drained:
		return switchDecision{consensus.SwitchDone, g.From + " was drained again by an operator"}
	case v.answers > 0:
		return switchDecision{consensus.SwitchDone, "DNS answers name " + g.From + " again"}
	case since >= switchBackTimeout:
		return switchDecision{consensus.SwitchDone, fmt.Sprintf("%s is not drained, and no DNS answer names it after %s: `spillway explain` shows why", g.From, switchBackTimeout)}
	}
	return switchDecision{}
}
