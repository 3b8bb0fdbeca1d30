package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
)

// globalNode is one node of the global tier. It fails with its region, and receives what the network delivers.
type globalNode struct {
	index       int32 // index in the fleet
	region      *regionState
	core        *globalCore
	planEpoch   uint64 // of the plan in force at it
	deathCauses int    // active causes of its own death
}

// defaultNodes is the default number of global nodes.
const defaultNodes = 3

// nodeName is the name of the node's region: there is one node per region.
func (n *globalNode) nodeName() string { return n.region.name }

// newGlobalNodes adds a node to each region that has one.
func (r *simulation) newGlobalNodes() (out []*globalNode) {
	var places []geo.Location
	for _, reg := range r.regions {
		places = append(places, reg.location)
	}
	where := r.scenario.Steering.Nodes
	if len(where) == 0 {
		for _, reg := range r.regions[:min(defaultNodes, len(r.regions))] {
			where = append(where, reg.name)
		}
	}
	for i, name := range where {
		at := slices.IndexFunc(r.regions, func(reg *regionState) bool { return reg.name == name }) // checkScenario has verified it
		core := newGlobalCore(name, where, r.spec, places, r.timeAt(0))
		out = append(out, &globalNode{index: int32(i), region: r.regions[at], core: core})
	}
	return out
}

// isUp reports whether a node runs.
func (p *globalTier) isUp(n *globalNode) bool {
	return p.deathCauses == 0 && n.deathCauses == 0 && !n.region.down
}

// canReach reports whether a region and a running node are connected.
func (r *simulation) canReach(reg *regionState, n *globalNode) bool {
	return r.global.isUp(n) && !r.isCutFromGlobalTier(reg) && !r.isPartitioned(reg, n.region)
}

// canMeet reports whether two nodes are connected.
func (r *simulation) canMeet(a, b *globalNode) bool {
	return a == b || r.global.isUp(a) && r.global.isUp(b) && !r.isPartitioned(a.region, b.region)
}

// currentLeader is the leader of the global tier; nil without one. If elections take no time it is the first node
// that reaches a majority. Otherwise a leader stays while it reaches a majority, and the next one starts ElectionTime
// later.
func (r *simulation) currentLeader() *globalNode {
	p, takes := r.global, int64(r.scenario.Steering.ElectionTime)
	if takes == 0 {
		return r.electableNode()
	}
	switch {
	case p.leader == nil && !p.hadLeader: // the run starts with a leader
		p.leader, p.hadLeader = r.electableNode(), true
	case p.leader == nil || !r.hasMajority(p.leader):
		p.leader, p.leaderSince = r.electableNode(), r.now+takes
	}
	if r.now < p.leaderSince {
		return nil
	}
	return p.leader
}

// electableNode is the first node that reaches a majority; nil when none does.
func (r *simulation) electableNode() *globalNode {
	for _, n := range r.global.nodes {
		if r.hasMajority(n) {
			return n
		}
	}
	return nil
}

// hasMajority reports whether a node reaches a majority.
func (r *simulation) hasMajority(n *globalNode) bool {
	p, met := r.global, 0
	for _, o := range p.nodes {
		if p.isUp(n) && r.canMeet(n, o) {
			met++
		}
	}
	return 2*met > len(p.nodes)
}

// nearestNode is the node that a region's resolvers query; nil when they reach none.
func (r *simulation) nearestNode(reg *regionState) (best *globalNode) {
	for _, n := range r.global.nodes {
		if r.canReach(reg, n) && (best == nil || r.regionRTT(reg, n.region) < r.regionRTT(reg, best.region)) {
			best = n
		}
	}
	return best
}

// exchangePeerReports sends every node's peer report to the others.
func (r *simulation) exchangePeerReports() {
	r.events.addEvent(event{at: r.now + int64(peerReportInterval), kind: evPeerReportDue})
	now := r.timeAt(r.now)
	for _, n := range r.global.nodes {
		if !r.global.isUp(n) {
			continue
		}
		t := &peerReportMessage{from: n.nodeName(), body: n.core.encodePeerReport(now)}
		for _, o := range r.global.nodes {
			if o != n && r.canMeet(n, o) {
				if late, ok := r.datagramDelay(n.region, o.region); ok {
					r.events.addEvent(event{at: r.now + late, kind: evPeerReportArrival, index: o.index, payload: t})
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

func (r *simulation) receivePeerReport(n *globalNode, t *peerReportMessage) {
	if r.global.isUp(n) {
		n.core.peerReports.PutReport(t.from, t.body, r.timeAt(r.now))
	}
}

// agreedPlan is the plan of an epoch.
type agreedPlan struct {
	plan  *steer.Plan
	epoch uint64
}

// makePlan lets the leader plan.
func (r *simulation) makePlan() {
	p := r.global
	r.events.addEvent(event{at: r.now + p.planInterval, kind: evMakePlan})
	n := r.currentLeader()
	if n == nil || n.planEpoch < p.agreedPlan.epoch { // a new leader catches up first
		return
	}
	if plan := n.core.makePlan(r.timeAt(r.now)); plan != nil {
		r.result.Plans++
		r.events.addEvent(event{at: r.now + planAgreementDelay, kind: evPlanAgreed, payload: plan})
	}
}

// agreePlan commits a plan if there is still a majority.
func (r *simulation) agreePlan(plan *steer.Plan) {
	if r.currentLeader() == nil {
		return
	}
	p := r.global
	p.agreedPlan = agreedPlan{plan, p.agreedPlan.epoch + 1}
	r.distributePlan(r.timeAt(r.now))
}

// distributePlan sets the agreed plan at every node that the leader reaches and that has an older one.
func (r *simulation) distributePlan(now time.Time) {
	p := r.global
	lead := r.currentLeader()
	if lead == nil {
		return
	}
	for _, n := range p.nodes {
		if n.planEpoch < p.agreedPlan.epoch && r.canMeet(lead, n) {
			n.core.applyPlan(p.agreedPlan.plan, p.agreedPlan.epoch, now)
			n.planEpoch = p.agreedPlan.epoch
		}
	}
}
