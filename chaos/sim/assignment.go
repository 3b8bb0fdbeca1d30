package sim

import (
	"time"

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

// assignWorkers updates an instance's assignment of workers.
func (zt *zoneTier) assignWorkers(a *localInstance, n int) {
	zt.loop.addEvent(event{at: zt.loop.now + int64(assignmentInterval), kind: evAssignWorkers, index: a.index, payload: n + 1})
	if a.down || a.peers == nil {
		return
	}
	now := zt.loop.currentTime()
	if n%peerCheckEvery == 0 {
		for _, m := range a.peers.KnownPeers() {
			if b := zt.topology.instanceByName[m.Endpoint]; b != nil && !b.down {
				workers := b.sim.ReachedWorkers()
				a.peers.RecordPeerAnswer(m.Name, sharding.ComputeListVersion(workers), workers, now)
			}
		}
	}
	d := a.peers.AssignWorkers(now)
	a.sim.ApplyAssignment(&d, func(string) bool { return false }, now)
	zt.handleSettled(a)
}

// applyZoneDirective applies a gateway's directive at an instance.
func (zt *zoneTier) applyZoneDirective(a *localInstance, w directiveMessage) {
	d := w.directive
	if a.down || d == nil {
		return
	}
	now := zt.loop.currentTime()
	if a.peers != nil {
		var members []sharding.ZoneInstance
		for _, l := range d.ZoneInstances {
			members = append(members, sharding.ZoneInstance{Name: l.Name, Endpoint: l.Endpoint})
		}
		a.peers.ApplyGatewayReport(w.sender.name, members, now)
	}
	if d.Index > a.applied.index || d.Index == a.applied.index && d.PlanEpoch > a.applied.planEpoch {
		a.applied = directiveVersion{d.Index, d.PlanEpoch}
		a.sim.applyDirective(d, zt.spec, now)
		zt.handleSettled(a)
	}
}

// sendZoneSummary sends the summary of a zone's instance to its region's gateways.
func (zt *zoneTier) sendZoneSummary(a *localInstance) {
	if a.down {
		zt.loop.addEvent(event{at: zt.loop.now + summaryInterval, kind: evZoneSummaryDue, index: a.index})
		return
	}
	summary, next := a.sender.nextSummary(a.sim.Reports.BuildSummary(a.sim.path, zt.loop.currentTime()), zt.loop.now)
	zt.loop.addEvent(event{at: next, kind: evZoneSummaryDue, index: a.index})
	for _, g := range a.zone.region.gateways {
		zt.loop.addEvent(event{at: zt.loop.now + zt.network.zoneDelay(), kind: evZoneSummaryArrival, index: g.index, payload: summary})
		if a.peers != nil && !g.down {
			a.peers.RecordGatewayAlive(g.name, zt.loop.currentTime())
		}
	}
}
