package routing

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// RecordSpillAcceptance records that a peer took a spilled request.
func (r *Router) RecordSpillAcceptance(q *RouteQuery, d *RouteDecision) {
	r.spillBudgets.RecordAcceptance(d.Path.Region, q.Model)
}

// RecordSpillRefusal records that a peer refused a spilled request before it started. The peer receives no spills for
// a while, and this request is not sent to it again. It returns true when the request is to be routed again: no work
// was done for it yet, so this takes nothing from the retry budget.
func (r *Router) RecordSpillRefusal(q *RouteQuery, d *RouteDecision, now time.Time) (again bool) {
	r.spillBudgets.RecordRefusal(d.Path.Region, q.Model, now, r.cfg.Rand)
	q.ExcludedPeer = d.Path.Region
	if d.SpillCostLimit <= 0 {
		return false
	}
	q.ExcludedPeer = ExcludeAllPeers // one refusal ends spilling for this request
	return true
}

// The reasons to refuse a spilled request, as metric labels.
const (
	SpillInNoRoom       = "no_room"        // no healthy zone of this region can serve it within an acceptable time
	SpillInSoonerAtHome = "sooner_at_home" // its own region would serve it sooner, by the estimate of its gateway
)

// WhyRefuseSpilled returns why a request of another region is refused, or "". A spilled request is not admitted as a last
// resort, nor when it would cost more here than within, its limit by the estimate of its own gateway (0: none). That
// gateway decided on an older summary, so the state here is the better one. target is the TTFT target of its class.
func (r *Router) WhyRefuseSpilled(q *RouteQuery, within, target time.Duration, now time.Time) string {
	d, ok := r.Preview(q, now, nil)
	switch {
	case !ok, d.Reason == ReasonLastResort, r.view.Drained, d.TTFTSeconds > spillInWaitFactor*target.Seconds():
		return SpillInNoRoom
	case within > 0 && d.TotalSeconds() > within.Seconds():
		return SpillInSoonerAtHome
	}
	return ""
}

// ticketMark is the last ticket issued before a point in time.
type ticketMark struct {
	recordedAt time.Time
	ticket     uint64
}

// creditSpills removes spills from the ledger that the peers' summaries count by now; otherwise they would count
// twice. A summary of age A from a peer at round-trip time R counts the requests sent before now - A - R -
// summaryDelay.
func (r *Router) creditSpills(now time.Time) {
	last := r.ledger.LastTicket()
	for i := range r.policy.Peers {
		p := &r.policy.Peers[i]
		counted := now.Add(-p.Age - p.RTT - summaryDelay)
		marks := append(r.ticketMarks[p.Region], ticketMark{now, last})
		k := 0
		for k < len(marks) && !marks[k].recordedAt.After(counted) {
			k++
		}
		if k > 0 {
			r.ledger.AckThrough(capacity.Path{Region: p.Region}, marks[k-1].ticket)
			marks = marks[k-1:]
		}
		r.ticketMarks[p.Region] = marks[max(0, len(marks)-maxTicketMarks):]
	}
	for region := range r.ticketMarks {
		if !r.policy.isPeer(region) {
			delete(r.ticketMarks, region)
			r.ledger.ForgetPath(capacity.Path{Region: region})
		}
	}
	r.spillBudgets.RetainPeers(r.policy.isPeer)
}

func (p *Policy) isPeer(region string) bool {
	for i := range p.Peers {
		if p.Peers[i].Region == region {
			return true
		}
	}
	return false
}
