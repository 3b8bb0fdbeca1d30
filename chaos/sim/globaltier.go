package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
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

// exchangePeerReports sends every node's peer report to the others.
func (p *globalTier) exchangePeerReports() {
	p.loop.addEvent(event{at: p.loop.now + int64(peerReportInterval), kind: evPeerReportDue})
	now := p.loop.currentTime()
	for _, n := range p.nodes {
		if !p.isUp(n) {
			continue
		}
		t := &peerReportMessage{from: n.nodeName(), body: n.core.encodePeerReport(now)}
		for _, o := range p.nodes {
			if o != n && p.canMeet(n, o) {
				if late, ok := p.network.datagramDelay(n.region, o.region); ok {
					p.loop.addEvent(event{at: p.loop.now + late, kind: evPeerReportArrival, index: o.index, payload: t})
				}
			}
		}
	}
}

// peerReportMessage is a node's peer report in transit to another.
type peerReportMessage struct {
	from string
	body []byte
}

func (p *globalTier) receivePeerReport(n *globalNode, t *peerReportMessage) {
	if p.isUp(n) {
		n.core.peerReports.PutReport(t.from, t.body, p.loop.currentTime())
	}
}

// planAgreementDelay is the time from making a plan until it is in force.
const planAgreementDelay = int64(100 * time.Millisecond)

// currentLeader is the leader of the global tier; nil without one. If elections take no time it is the first node
// that reaches a majority. Otherwise a leader stays while it reaches a majority, and the next one starts ElectionTime
// later.
func (p *globalTier) currentLeader() *globalNode {
	takes := int64(p.scenario.Steering.ElectionTime)
	if takes == 0 {
		return p.electableNode()
	}
	switch {
	case p.leader == nil && !p.hadLeader: // the run starts with a leader
		p.leader, p.hadLeader = p.electableNode(), true
	case p.leader == nil || !p.hasMajority(p.leader):
		p.leader, p.leaderSince = p.electableNode(), p.loop.now+takes
	}
	if p.loop.now < p.leaderSince {
		return nil
	}
	return p.leader
}

// electableNode is the first node that reaches a majority; nil when none does.
func (p *globalTier) electableNode() *globalNode {
	for _, n := range p.nodes {
		if p.hasMajority(n) {
			return n
		}
	}
	return nil
}

// hasMajority reports whether a node reaches a majority.
func (p *globalTier) hasMajority(n *globalNode) bool {
	met := 0
	for _, o := range p.nodes {
		if p.isUp(n) && p.canMeet(n, o) {
			met++
		}
	}
	return 2*met > len(p.nodes)
}

// agreedPlan is the plan of an epoch.
type agreedPlan struct {
	plan  *steer.Plan
	epoch uint64
}

// makePlan lets the leader plan.
func (p *globalTier) makePlan() {
	p.loop.addEvent(event{at: p.loop.now + p.planInterval, kind: evMakePlan})
	n := p.currentLeader()
	if n == nil || n.planEpoch < p.agreedPlan.epoch { // a new leader catches up first
		return
	}
	if plan := n.core.makePlan(p.loop.currentTime()); plan != nil {
		p.result.Plans++
		p.loop.addEvent(event{at: p.loop.now + planAgreementDelay, kind: evPlanAgreed, payload: plan})
	}
}

// agreePlan commits a plan if there is still a majority.
func (p *globalTier) agreePlan(plan *steer.Plan) {
	if p.currentLeader() == nil {
		return
	}
	p.agreedPlan = agreedPlan{plan, p.agreedPlan.epoch + 1}
	p.distributePlan(p.loop.currentTime())
}

// distributePlan sets the agreed plan at every node that the leader reaches and that has an older one.
func (p *globalTier) distributePlan(now time.Time) {
	lead := p.currentLeader()
	if lead == nil {
		return
	}
	for _, n := range p.nodes {
		if n.planEpoch < p.agreedPlan.epoch && p.canMeet(lead, n) {
			n.core.applyPlan(p.agreedPlan.plan, p.agreedPlan.epoch, now)
			n.planEpoch = p.agreedPlan.epoch
		}
	}
}
