package virtual

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Config of a virtual run.
type Config struct {
	Seed    uint64
	Version string
	// Network replaces the round trips by those of a local fleet, for predictions; nil: regions are at their distances.
	Network *sim.NetworkModel
	// OnProgress is called with the completed fraction; nil: not called.
	OnProgress func(float64)
}

// Settings of the fleet that the simulator does not read from files.
const (
	// answerTTL is the TTL of a local fleet's service.
	answerTTL = 5 * time.Second
	// electionTime is that of a fleet with production's heartbeat of 1 s.
	electionTime = 2 * time.Second
	// drainGrace is how long the run waits for answers after the last request.
	drainGrace = 2 * time.Minute
	// accessRTT is the round trip between clients and their gateway, between loopback and a distant city.
	accessRTT = 10 * time.Millisecond
)

// observedKinds are the kinds of events that the simulator records.
var observedKinds = []drill.EventKind{
	drill.RunStateChanged, drill.FaultInjected, drill.FaultCleared, drill.FaultVerified, drill.RunStopped, drill.RequestDue, drill.AttemptStarted, drill.FirstToken, drill.RequestEnded,
	drill.PlanApplied, drill.LeaderChanged, drill.RegionState, drill.NodeState, drill.SummaryAge, drill.CacheUsage, drill.DNSAnswered, drill.DNSFailed, drill.ResolverAnswered, drill.DrainAcked, drill.DrainEnded,
}

// Run runs a drill in the simulator and returns its log.
func Run(ctx context.Context, f *drill.DrillFile, c Config) (*drill.EventLog, error) {
	if why := Unsupported(f); why != "" {
		return nil, fmt.Errorf("drill %s runs live only: %s", f.Name, why)
	}
	b, err := buildFaults(f)
	if err != nil {
		return nil, err
	}
	arrivals, err := NewArrivals(f, c.Seed)
	if err != nil {
		return nil, fmt.Errorf("making the load of drill %s: %w", f.Name, err)
	}
	r := &recorder{file: f, faults: b, log: &drill.EventLog{Header: drill.LogHeader{
		Format: drill.LogFormat, Drill: string(drill.FormatFile(f)), Way: drill.WayVirtual, Seed: c.Seed, Version: c.Version, Observes: observedKinds, Notes: b.notes,
	}}}
	s := sim.Scenario{
		Fleet: buildFleet(f), Workload: load.NewFeed(arrivals, f.Load.Duration), Models: modelNames, Tenants: tenantNames, Seed: c.Seed, Duration: f.Load.Duration, WarmUp: f.Load.WarmUp,
		GracePeriod: drainGrace, SLO: sim.GoodputSLO{TTFT: f.SLO.TTFT, TPOT: f.SLO.TPOT}, AlwaysGateways: true,
		OutputLimit: func(q *load.Request) int { return q.Output },
		ClassOf: func(q *load.Request) spec.Class {
			if q.Tenant == 1 {
				return spec.Batch
			}
			return spec.Interactive
		},
		Network:       sim.NetworkModel{AccessRTT: accessRTT},
		Steering:      sim.SteeringConfig{Enabled: len(f.RegionNames()) > 1, TTL: answerTTL, ElectionTime: electionTime, HoldAnswers: f.Load.HoldAnswers, Nodes: nodeRegions(f)},
		OnObservation: r.addObservation,
	}
	if c.Network != nil {
		s.Network = *c.Network
	}
	for _, x := range b.out {
		s.Faults = append(s.Faults, x.Fault)
	}
	r.addSurges()
	if _, err := sim.Run(ctx, s, c.OnProgress); err != nil {
		return nil, fmt.Errorf("running drill %s in the simulator: %w", f.Name, err)
	}
	r.log.SortEvents()
	return replayMachine(f, r.log), nil
}

// LocalNetwork is the network of a local fleet with relays: regions at their distances, and clients on the same machine. path is the
// time from a client to an engine and back on the idle fleet, which includes what its processes need.
func LocalNetwork(path time.Duration) *sim.NetworkModel {
	path = max(path, time.Millisecond)
	return &sim.NetworkModel{AccessRTT: path - path/5, ZoneRTT: path / 5}
}

// nodeRegions are the regions of the global nodes. A local fleet's global nodes belong to no region; the simulator has one in
// each of the first regions.
func nodeRegions(f *drill.DrillFile) []string {
	regions := f.RegionNames()
	return regions[:min(f.Layout().Globals, len(regions))]
}

// buildFleet is the drill's fleet for the simulator.
func buildFleet(f *drill.DrillFile) (out sim.Fleet) {
	l := f.Layout()
	nodes := l.BuildNodes()
	for _, site := range fleet.AllSites()[:l.Regions] {
		reg := sim.FleetRegion{Name: site.Name, Lat: site.Lat, Lon: site.Lon, Gateways: l.Gateways}
		for _, n := range nodes {
			if n.Role != "worker" || n.Region != site.Name {
				continue
			}
			if k := len(reg.Zones); k == 0 || reg.Zones[k-1].Name != n.Zone {
				reg.Zones = append(reg.Zones, sim.FleetZone{Name: n.Zone, Locals: l.Locals})
			}
			z := &reg.Zones[len(reg.Zones)-1]
			z.Groups = append(z.Groups, sim.WorkerGroup{Count: 1, GPU: n.GPU, Model: n.Model})
		}
		out.Regions = append(out.Regions, reg)
	}
	return out
}

// replayMachine runs the state machine over a finished log, as a controller would have: its states become events, and the
// log ends where a stop rule ends the run.
func replayMachine(f *drill.DrillFile, l *drill.EventLog) *drill.EventLog {
	const tick = 100 * time.Millisecond
	m := drill.NewMachine(f)
	out := &drill.EventLog{Header: l.Header}
	next := time.Duration(0)
	add := func(now time.Duration) {
		m.Advance(now)
		out.Events = append(out.Events, m.TakeChanges()...)
	}
	for i := range l.Events {
		e := &l.Events[i]
		for next <= e.At {
			add(next)
			next += tick
			if m.StopReason() != "" {
				return finishStopped(out, l, i)
			}
		}
		m.ObserveEvent(e)
		out.Events = append(out.Events, *e)
	}
	for m.State() != drill.StateEnded && next <= f.Load.Duration+drainGrace {
		add(next)
		next += tick
	}
	out.SortEvents()
	return out
}

// finishStopped cuts a log where the run was stopped. The faults that were active then count as cleared there: a stopped
// controller clears them first.
func finishStopped(out, l *drill.EventLog, at int) *drill.EventLog {
	now := out.Until()
	active := map[uint64]drill.Event{}
	for _, e := range l.Events[:at] {
		switch e.Kind {
		case drill.FaultInjected:
			active[e.Number] = e
		case drill.FaultCleared:
			delete(active, e.Number)
		}
	}
	for n := range uint64(len(l.Events)) {
		if len(active) == 0 {
			break
		}
		if e, ok := active[n]; ok {
			delete(active, n)
			out.Events = append(out.Events, drill.Event{At: now, Kind: drill.FaultCleared, Number: n, Target: e.Target, Text: e.Text}, drill.Event{At: now, Kind: drill.FaultVerified, Number: n, Text: "the simulation ends here"})
		}
	}
	return out
}
