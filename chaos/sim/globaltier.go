package sim

import (
	"net/netip"
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
	observer *observer
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
			if !p.canReach(g.region, n, DirectiveTraffic) {
				continue
			}
			if late, ok := p.network.datagramDelay(g.region, n.region, DirectiveTraffic); ok {
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

// canReach reports whether a region and a running node are connected for a kind of traffic.
func (p *globalTier) canReach(reg *regionState, n *globalNode, what Traffic) bool {
	return p.isUp(n) && !p.faults.isCutFromGlobalTier(reg, what) && !p.faults.isPartitioned(reg, n.region, what)
}

// canMeet reports whether two nodes are connected.
func (p *globalTier) canMeet(a, b *globalNode) bool {
	return a == b || p.isUp(a) && p.isUp(b) && !p.faults.isPartitioned(a.region, b.region, RaftTraffic)
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
				if late, ok := p.network.datagramDelay(n.region, o.region, RaftTraffic); ok {
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
			p.observer.recordPlan(n, p.agreedPlan)
		}
	}
}

// cachedAnswer is a resolver's cached answer.
type cachedAnswer struct {
	region    int32
	gateways  []*gatewayInstance // its gateways, in the order of the answer
	expiresAt int64
}

// resolveGateway is the gateway that a client uses: one of its own region, or of its resolver's answer. fresh
// bypasses the resolver's cache.
func (p *globalTier) resolveGateway(x *simulatedRequest, fresh bool) *gatewayInstance {
	q := x.req
	own := p.topology.clientRegion(q)
	turn := splitMix64(q.Session) + uint64(x.clientTries)
	pick := func(list []*gatewayInstance) *gatewayInstance { return list[turn%uint64(len(list))] }
	if !p.hasNodes() || !p.scenario.Steering.Enabled {
		return pick(own.gateways)
	}
	n := int32(splitMix64(q.Session) % uint64(p.scenario.Steering.resolverCount()))
	cached := p.dnsCaches[own.index][n]
	if cached != nil && p.loop.now < cached.expiresAt && !fresh {
		return pick(cached.gateways)
	}
	node := p.nearestNode(own)
	if node == nil { // no answer: the cached one stays in use
		if cached != nil {
			return pick(cached.gateways)
		}
		return pick(own.gateways)
	}
	p.result.Queries++
	to, ttl := node.core.pickRegion(0, own.location, resolverAddr(own.index, n))
	at := p.regionIndex(to)
	if at < 0 {
		return pick(own.gateways)
	}
	if cached == nil {
		cached = &cachedAnswer{}
		p.dnsCaches[own.index][n] = cached
	}
	cached.region, cached.expiresAt = at, p.loop.now+int64(max(ttl, p.scenario.Steering.HoldAnswers))
	cached.gateways = cached.gateways[:0]
	for _, a := range node.core.gatewayAddrs(to) {
		if g := p.topology.gatewayByAddr[a.Unmap()]; g != nil {
			cached.gateways = append(cached.gateways, g)
		}
	}
	if len(cached.gateways) == 0 {
		cached.gateways = append(cached.gateways, p.topology.regions[at].gateways...)
	}
	return pick(cached.gateways)
}

// regionIndex is the fleet's index of a region of the spec.
func (p *globalTier) regionIndex(inSpec int) int32 {
	if inSpec < 0 {
		return -1
	}
	name := p.spec.Regions[inSpec].Name
	for i, reg := range p.topology.regions {
		if reg.name == name {
			return int32(i)
		}
	}
	return -1
}

// resolverAddr is the address of a resolver of a region; each has its own network.
func resolverAddr(region, n int32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + region%200), byte(n >> 8), byte(n), 7})
}

// nearestNode is the node that a region's resolvers query; nil when they reach none.
func (p *globalTier) nearestNode(reg *regionState) (best *globalNode) {
	for _, n := range p.nodes {
		if p.canReach(reg, n, DNSTraffic) && (best == nil || p.network.regionRTT(reg, n.region) < p.network.regionRTT(reg, best.region)) {
			best = n
		}
	}
	return best
}
