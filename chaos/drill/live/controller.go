package live

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fault"
)

// controller does what the machine of a run asks for.
type controller struct {
	file     *drill.DrillFile
	config   Config
	injector fault.Injector
	events   *eventQueue
	target   *target
	machine  *drill.Machine
	started  time.Time
	actions  sync.WaitGroup
}

const (
	// controlInterval is how often the machine is asked. The ticks' lateness shows how busy the machine is.
	controlInterval = 100 * time.Millisecond
	// actionTimeout bounds one action at the injured place.
	actionTimeout = 20 * time.Second
	// stopInterval is how often StopReason is asked.
	stopInterval = time.Second
)

// runSteps runs the machine to its end. When ctx is done, the run is stopped, with its faults cleared first.
func (c *controller) runSteps(ctx context.Context) {
	tick := time.NewTicker(controlInterval)
	defer tick.Stop()
	actionCtx := context.WithoutCancel(ctx)
	nextStop, nextLate, worst := time.Duration(0), time.Second, 0.0
	for due := c.started.Add(controlInterval); c.machine.State() != drill.StateEnded; due = due.Add(controlInterval) {
		<-tick.C
		now := c.events.since(time.Now())
		worst = max(worst, time.Since(due).Seconds())
		for time.Since(due) > controlInterval { // lost ticks are lateness, once
			due = due.Add(controlInterval)
		}
		if now >= nextLate {
			c.events.add(drill.Event{Kind: drill.MachineLate, Value: worst})
			nextLate, worst = now+time.Second, 0
			c.observeRelay(actionCtx)
		}
		if now >= nextStop {
			nextStop = now + stopInterval
			if reason := c.config.StopReason(); reason != "" {
				c.machine.StopRun(reason)
			} else if ctx.Err() != nil {
				c.machine.StopRun("the controller was interrupted")
			}
		}
		for _, e := range c.events.takeNew() {
			c.machine.ObserveEvent(&e)
		}
		for _, a := range c.machine.Advance(now) {
			c.startAction(actionCtx, a)
		}
		c.events.add(c.machine.TakeChanges()...)
	}
	c.actions.Wait()
}

// observeRelay records how late the relays delivered by themselves.
func (c *controller) observeRelay(ctx context.Context) {
	c.actions.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, actionTimeout)
		defer cancel()
		if late, err := fault.ReadLateness(ctx, c.config.Dir); err == nil && late.Count > 0 {
			c.events.add(drill.Event{Kind: drill.MachineLate, Node: "relay", Value: late.P99.Seconds()})
		}
	})
}

// startAction does one action without waiting for it.
func (c *controller) startAction(ctx context.Context, a drill.Action) {
	if a.Kind == drill.ActionEnd {
		return
	}
	s := &c.file.Steps[a.Step]
	if s.Kind == drill.SurgeKind {
		c.events.add(surgeEvents(a, s)...)
		return
	}
	c.actions.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, actionTimeout)
		defer cancel()
		c.events.add(c.doAction(ctx, a, s)...)
	})
}

// surgeEvents are the events of a step that is part of the load.
func surgeEvents(a drill.Action, s *drill.Step) []drill.Event {
	e := drill.Event{Number: uint64(a.Step), Target: s.Target, Text: string(s.Kind)}
	switch a.Kind {
	case drill.ActionInject:
		e.Kind = drill.FaultInjected
	case drill.ActionClear:
		e.Kind = drill.FaultCleared
	case drill.ActionVerify:
		e.Kind, e.Text = drill.FaultVerified, "the further arrivals have ended"
	default:
		return nil
	}
	return []drill.Event{e}
}

func (c *controller) faultID(step int) string {
	return fmt.Sprintf("%s.%d.%d", c.file.Name, os.Getpid(), step+1)
}

// doAction does one action at the injured place and returns its events.
func (c *controller) doAction(ctx context.Context, a drill.Action, s *drill.Step) []drill.Event {
	id := c.faultID(a.Step)
	e := drill.Event{Number: uint64(a.Step), Target: s.Target, Text: string(s.Kind)}
	switch a.Kind {
	case drill.ActionInject:
		spec := s.Spec(id)
		spec.Lease = drill.LeaseTime
		before := c.events.since(time.Now())
		if err := c.injector.Inject(ctx, spec); err != nil {
			e.Kind, e.Text = drill.FaultFailed, err.Error()
			return []drill.Event{e}
		}
		e.At, e.Kind = before, drill.FaultInjected // the fault begins before the call returns
		c.noteVictims(ctx, id, before, true)
		return []drill.Event{e}
	case drill.ActionRenew:
		if err := c.injector.Renew(ctx, id); err != nil {
			return []drill.Event{{Kind: drill.NoteAdded, Text: "renewing " + id + ": " + err.Error()}}
		}
		return nil
	case drill.ActionClear:
		if err := c.injector.Clear(ctx, id); err != nil {
			return []drill.Event{{Kind: drill.NoteAdded, Text: "clearing " + id + ": " + err.Error()}}
		}
		e.Kind = drill.FaultCleared
		return []drill.Event{e}
	}
	state, err := c.injector.Verify(ctx, id)
	switch {
	case err != nil:
		e.Kind, e.Text = drill.FaultRemains, "the probe failed: "+err.Error()
	case state.Phase == fault.PhaseCleared:
		e.Kind, e.Text = drill.FaultVerified, state.Probe
		c.noteVictims(ctx, id, 0, false)
	default:
		e.Kind, e.Text = drill.FaultRemains, string(state.Phase)+": "+state.Probe
	}
	return []drill.Event{e}
}

// noteVictims records which global nodes a fault takes down, or gives back.
func (c *controller) noteVictims(ctx context.Context, id string, at time.Duration, down bool) {
	state, err := c.injector.Verify(ctx, id)
	if err != nil {
		return
	}
	for _, n := range c.target.files.NodesByRole("global") {
		for _, v := range state.Victims {
			if v == n.ID() && down {
				c.target.setDown(n.ID(), true)
				c.events.add(drill.Event{At: at, Kind: drill.NodeState, Node: v, Text: "down"})
			}
			if v == n.ID() && !down {
				c.target.setDown(n.ID(), false) // it is up with its first answer
			}
		}
	}
}
