package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/sharding"
)

// Division of a zone's workers among its instances, as in an Agent (local/siblings.go): the decisions are those of
// local/sharding, the message transport is here. Each instance updates the assignment every 250 ms and sends
// heartbeats to the others every 500 ms; a gateway reports the live instances at each change and every five seconds.
const (
	assignmentInterval = sharding.AssignmentInterval
	peerCheckEvery     = 2 // assignments
	directiveInterval  = int64(5 * time.Second)
)

// directiveVersion is the version of the gateways' directives that is in force at an instance.
type directiveVersion struct{ index, planEpoch uint64 }

// hasSeveralInstances reports whether a zone has several instances.
func (r *simulation) hasSeveralInstances(z *zoneState) bool {
	f := r.scenario.Fleet.findRegion(z.region.name)
	return f != nil && f.findZone(z.name).Locals > 1
}

// assignWorkers updates an instance's assignment of workers.
func (r *simulation) assignWorkers(a *localInstance, n int) {
	r.events.addEvent(event{at: r.now + int64(assignmentInterval), kind: evAssignWorkers, index: a.index, payload: n + 1})
	if a.down || a.peers == nil {
		return
	}
	now := r.timeAt(r.now)
	if n%peerCheckEvery == 0 {
		for _, m := range a.peers.KnownPeers() {
			if b := r.instanceByName[m.Endpoint]; b != nil && !b.down {
				workers := b.sim.ReachedWorkers()
				a.peers.RecordPeerAnswer(m.Name, sharding.ComputeListVersion(workers), workers, now)
			}
		}
	}
	d := a.peers.AssignWorkers(now)
	a.sim.ApplyAssignment(&d, func(string) bool { return false }, now)
	r.handleSettled(a)
}

// needsDirectives reports whether gateways have anything to send to their zones.
func (r *simulation) needsDirectives() bool {
	for i := range r.scenario.Fleet.Regions {
		for k := range r.scenario.Fleet.Regions[i].Zones {
			if r.scenario.Fleet.Regions[i].Zones[k].Locals > 1 {
				return true
			}
		}
	}
	for i := range r.scenario.Faults {
		if r.scenario.Faults[i].Kind == Drain {
			return true
		}
	}
	return false
}

// sendZoneDirectives lets a gateway send its directive and the live instances to its zones, after a change or when
// due.
func (r *simulation) sendZoneDirectives(g *gatewayInstance) {
	if !r.sendsDirectives || g.down {
		return
	}
	news := g.model.directiveVersion()
	if news == g.lastDirective.news && r.now < g.lastDirective.again {
		return
	}
	g.lastDirective.news, g.lastDirective.again = news, r.now+directiveInterval
	for _, z := range g.region.zones {
		for _, a := range z.instances {
			r.events.addEvent(event{at: r.now + r.zoneDelay(), kind: evZoneDirectiveArrival, index: a.index, payload: directiveMessage{g, g.model.directiveFor(a.sender.path)}})
		}
	}
}

// directiveMessage is a directive in transit to a zone.
type directiveMessage struct {
	sender    *gatewayInstance
	directive *uplink.Directive
}

// applyZoneDirective applies a gateway's directive at an instance.
func (r *simulation) applyZoneDirective(a *localInstance, w directiveMessage) {
	d := w.directive
	if a.down || d == nil {
		return
	}
	now := r.timeAt(r.now)
	if a.peers != nil {
		var members []sharding.ZoneInstance
		for _, l := range d.ZoneInstances {
			members = append(members, sharding.ZoneInstance{Name: l.Name, Endpoint: l.Endpoint})
		}
		a.peers.ApplyGatewayReport(w.sender.name, members, now)
	}
	if d.Index > a.applied.index || d.Index == a.applied.index && d.PlanEpoch > a.applied.planEpoch {
		a.applied = directiveVersion{d.Index, d.PlanEpoch}
		a.sim.applyDirective(d, r.spec, now)
		r.handleSettled(a)
	}
}
