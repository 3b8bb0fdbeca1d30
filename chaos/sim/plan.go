package sim

import (
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

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
