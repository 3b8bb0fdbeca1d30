package virtual

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// recorder turns observations of the simulator into events of a log.
type recorder struct {
	file   *drill.DrillFile
	faults *faultBuilder
	log    *drill.EventLog
	active map[int]int // faults of the simulator in force, by step
}

// eventKinds are the events of observations that need no translation.
var eventKinds = map[sim.ObservationKind]drill.EventKind{
	sim.RequestDue: drill.RequestDue, sim.AttemptStarted: drill.AttemptStarted, sim.FirstToken: drill.FirstToken, sim.RequestEnded: drill.RequestEnded,
	sim.PlanApplied: drill.PlanApplied, sim.LeaderChanged: drill.LeaderChanged, sim.RegionStateChanged: drill.RegionState, sim.SummaryAge: drill.SummaryAge,
	sim.DNSAnswered: drill.DNSAnswered, sim.DNSFailed: drill.DNSFailed, sim.NodeStateChanged: drill.NodeState, sim.ResolverAnswered: drill.ResolverAnswered, sim.CacheUsage: drill.CacheUsage,
}

func (r *recorder) addObservation(n sim.Observation) {
	if n.Kind == sim.FaultInjected || n.Kind == sim.FaultCleared {
		r.addFault(int(n.Number), n.At, n.Kind == sim.FaultInjected)
		return
	}
	e := drill.Event{
		At: n.At, Kind: eventKinds[n.Kind], Node: n.Node, Target: n.Target, Text: n.Text, Code: n.Code, Request: n.Request, Number: n.Number, Value: n.Value, TTFT: n.TTFT, TPOT: n.TPOT,
		Count: n.Count, Good: n.Good,
	}
	switch n.Kind {
	case sim.PlanApplied, sim.LeaderChanged, sim.RegionStateChanged, sim.SummaryAge, sim.DNSAnswered, sim.DNSFailed, sim.NodeStateChanged:
		e.Node = r.nodeName(n.Node)
	case sim.ResolverAnswered:
		e.Node = n.Node + " " + n.Text
	}
	r.log.Events = append(r.log.Events, e)
}

// nodeName is the name of the global node of a region, in the fleet.
func (r *recorder) nodeName(region string) string {
	for i, name := range nodeRegions(r.file) {
		if name == region {
			return r.faults.globals[i]
		}
	}
	return region
}

// addFault adds the event of a step: its first fault injects it, its last one clears it.
func (r *recorder) addFault(index int, at time.Duration, on bool) {
	if r.active == nil {
		r.active = map[int]int{}
	}
	step := r.faults.out[index].step
	s := &r.file.Steps[step]
	before := r.active[step]
	if r.active[step]--; on {
		r.active[step] = before + 1
	}
	e := drill.Event{At: at, Number: uint64(step), Target: s.Target, Text: string(s.Kind)}
	switch {
	case on && before == 0:
		e.Kind = drill.FaultInjected
		r.log.Events = append(r.log.Events, e)
		r.addDrain(s, at, drill.DrainAcked)
	case !on && r.active[step] == 0:
		e.Kind = drill.FaultCleared
		done := drill.Event{At: at, Kind: drill.FaultVerified, Number: uint64(step), Text: "out of force in the simulator"}
		r.log.Events = append(r.log.Events, e, done)
		r.addDrain(s, at, drill.DrainEnded)
	}
}

func (r *recorder) addDrain(s *drill.Step, at time.Duration, kind drill.EventKind) {
	if s.Kind == drill.DrainKind {
		r.log.Events = append(r.log.Events, drill.Event{At: at, Kind: kind, Target: strings.ReplaceAll(s.Target, "-", "/")})
	}
}

// addSurges adds the events of steps that are part of the load.
func (r *recorder) addSurges() {
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if s.Kind != drill.SurgeKind {
			continue
		}
		r.log.Events = append(r.log.Events,
			drill.Event{At: s.At, Kind: drill.FaultInjected, Number: uint64(i), Target: s.Target, Text: string(s.Kind)},
			drill.Event{At: s.End(), Kind: drill.FaultCleared, Number: uint64(i), Target: s.Target, Text: string(s.Kind)},
			drill.Event{At: s.End(), Kind: drill.FaultVerified, Number: uint64(i), Text: fmt.Sprintf("the further arrivals end at %s", s.End())})
	}
}
