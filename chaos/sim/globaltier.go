package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// globalTier is the global tier, with the resolvers that query it. It is empty in a fleet of one region.
type globalTier struct {
	scenario     *Scenario
	spec         *spec.Spec
	result       *RunResult
	nodes        []*globalNode
	agreedPlan   agreedPlan
	planInterval int64
	deathCauses  int
	leader       *globalNode // the leader since some time, if elections take time
	leaderSince  int64
	hadLeader    bool                      // there was a leader
	dnsCaches    []map[int32]*cachedAnswer // by region and resolver

	loop     *eventLoop
	topology *topology
	network  *network
	faults   *faultStates
}

// startGlobalTier adds the global tier above the gateways.
func (p *globalTier) startGlobalTier() {
	if len(p.topology.regions) < 2 {
		return
	}
	p.planInterval = int64(p.spec.Steering.Interval)
	if p.planInterval <= 0 {
		p.planInterval = int64(time.Second)
	}
	for range p.topology.regions {
		p.dnsCaches = append(p.dnsCaches, map[int32]*cachedAnswer{})
	}
	p.nodes = p.newGlobalNodes()
	p.loop.addEvent(event{at: int64(snapshot.RebuildInterval), kind: evRefreshSnapshot})
	p.loop.addEvent(event{at: int64(snapshot.PeersInterval), kind: evGlobalDirectiveDue})
	p.loop.addEvent(event{at: int64(peerReportInterval), kind: evPeerReportDue})
	p.loop.addEvent(event{at: p.planInterval, kind: evMakePlan})
	for _, g := range p.topology.gateways {
		for _, o := range p.topology.regions {
			if o != g.region {
				g.model.peerRTTs.AddSample(o.name, time.Duration(p.network.regionRTT(g.region, o)), p.loop.timeAt(0))
			}
		}
	}
}

func (p *globalTier) receiveRegionSummary(n *globalNode, s *capacity.Summary) {
	if p.isUp(n) {
		n.core.summaries.PutSummary(s, p.loop.currentTime())
	}
}

func (p *globalTier) sendGlobalDirectives() {
	p.loop.addEvent(event{at: p.loop.now + int64(snapshot.PeersInterval), kind: evGlobalDirectiveDue})
	for _, n := range p.nodes {
		for _, g := range p.topology.gateways {
			if !p.canReach(g.region, n) {
				continue
			}
			if late, ok := p.network.datagramDelay(g.region, n.region); ok {
				p.loop.addEvent(event{at: p.loop.now + late, kind: evGlobalDirectiveArrival, index: g.index, payload: n.core.buildDirective(g.region.name, p.loop.currentTime())})
			}
		}
	}
}

func (p *globalTier) refreshSnapshots() {
	p.loop.addEvent(event{at: p.loop.now + int64(snapshot.RebuildInterval), kind: evRefreshSnapshot})
	now := p.loop.currentTime()
	p.distributePlan(now)
	for _, n := range p.nodes {
		if p.isUp(n) {
			n.core.refreshSnapshot(now)
		}
	}
}

// newGlobalNodes adds a node to each region that has one.
func (p *globalTier) newGlobalNodes() (out []*globalNode) {
	var places []geo.Location
	for _, reg := range p.topology.regions {
		places = append(places, reg.location)
	}
	where := p.scenario.Steering.Nodes
	if len(where) == 0 {
		for _, reg := range p.topology.regions[:min(defaultNodes, len(p.topology.regions))] {
			where = append(where, reg.name)
		}
	}
	for i, name := range where {
		at := slices.IndexFunc(p.topology.regions, func(reg *regionState) bool { return reg.name == name }) // checkScenario has verified it
		core := newGlobalCore(name, where, p.spec, places, p.loop.timeAt(0))
		out = append(out, &globalNode{index: int32(i), region: p.topology.regions[at], core: core})
	}
	return out
}

// hasNodes reports whether the fleet has a global tier.
func (p *globalTier) hasNodes() bool { return len(p.nodes) > 0 }

// isUp reports whether a node runs.
func (p *globalTier) isUp(n *globalNode) bool {
	return p.deathCauses == 0 && n.deathCauses == 0 && !n.region.down
}

// canReach reports whether a region and a running node are connected.
func (p *globalTier) canReach(reg *regionState, n *globalNode) bool {
	return p.isUp(n) && !p.faults.isCutFromGlobalTier(reg) && !p.faults.isPartitioned(reg, n.region)
}

// canMeet reports whether two nodes are connected.
func (p *globalTier) canMeet(a, b *globalNode) bool {
	return a == b || p.isUp(a) && p.isUp(b) && !p.faults.isPartitioned(a.region, b.region)
}
