package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
)

// peerDecision is the best peer with its rank, and the peer that would be the soonest if the request were not held back.
type peerDecision struct {
	RouteDecision
	rank     candidateRank
	bestHeld heldSpill
}

// heldSpill is a peer to which the request may not go, with the reason and its cost there.
type heldSpill struct {
	region, reason string
	seconds        float64
}

// choosePeer returns the peer with the lowest cost, or a random one of several near-equal ones in proportion to their
// headroom: gateways with the same view must not all choose the same peer. When the region itself can serve the request
// (local), a peer must be fresh and have headroom for the class and spill budget.
func (v *RoutingView) choosePeer(q *RouteQuery, local bool, now time.Time, rng *rand.Rand, sink costSink) (best peerDecision, ok bool) {
	best.rank = rankIneligible
	at, whole, least := -1, 0.0, 0.0
	for i := range v.Peers {
		p := &v.Peers[i]
		r, c, held := p.computeCost(q, local, now, sink)
		s := c.totalSeconds()
		if held != "" && (best.bestHeld.reason == "" || s < best.bestHeld.seconds) {
			best.bestHeld = heldSpill{p.Region, held, s}
		}
		if r == rankIneligible || r > best.rank {
			continue
		}
		if r < best.rank || s < least-nearEqualSeconds && s*nearEqualFactor < least {
			best.rank, whole, least = r, 0, s // clearly better than all before it
		} else if s > max(least+nearEqualSeconds, least*nearEqualFactor) {
			continue
		}
		least = min(least, s)
		w := p.headroomFor(q)
		if whole += w; at < 0 || whole == w || rng.Float64()*whole < w {
			at, best.TTFTSeconds, best.Interference = i, c.ttft, c.interference
		}
	}
	if at < 0 {
		return best, false
	}
	p := &v.Peers[at]
	g := p.pickGateway(q, rng)
	best.Path, best.Peer, best.Endpoint = capacity.Path{Region: p.Region}, g.Name, g.Endpoint
	best.SpillRate, best.CachedTokens = q.SpillShare*p.headroomFor(q), q.creditedTokens(p.Summary, best.Path, p.State)
	return best, true
}

// headroomFor returns the peer's headroom for the query's model and class, in tokens/s, at least 1.
func (p *PeerRegion) headroomFor(q *RouteQuery) float64 {
	if m := q.modelEntry(p.Summary); m != nil {
		return float64(max(m.Headroom[q.Class], 1))
	}
	return 1
}

// peerRTTSeconds returns the round-trip time to a peer region, in seconds.
func (v *RoutingView) peerRTTSeconds(region string) float64 {
	for i := range v.Peers {
		if v.Peers[i].Region == region {
			return v.Peers[i].rttOrDefault().Seconds()
		}
	}
	return defaultPeerRTT.Seconds()
}

// rttOrDefault returns the round-trip time to the peer.
func (p *PeerRegion) rttOrDefault() time.Duration {
	if p.RTT <= 0 {
		return defaultPeerRTT
	}
	return p.RTT
}

// routeRTT returns what the path to the peer adds to the TTFT: one round trip, and a second one with Expect:
// 100-continue.
func (p *PeerRegion) routeRTT(q *RouteQuery) time.Duration {
	if q.ExpectContinue {
		return 2 * p.rttOrDefault()
	}
	return p.rttOrDefault()
}

// computeCost ranks one peer and predicts the cost of the query there, including the round trip. held is why the query may
// not be sent there although the peer could serve it.
func (p *PeerRegion) computeCost(q *RouteQuery, local bool, now time.Time, sink costSink) (r candidateRank, s routeCost, held string) {
	h := sink.addCandidate(p.Region)
	if p.Drained && (p.Summary == nil || len(p.Gateways) == 0) {
		h.markIneligible(IneligibleDraining)
		return rankIneligible, routeCost{}, ""
	}
	if p.Summary == nil {
		h.markIneligible(IneligibleNoReport)
		return rankIneligible, routeCost{}, ""
	}
	if len(p.Gateways) == 0 {
		h.markIneligible(IneligibleNoGateway)
		return rankIneligible, routeCost{}, ""
	}
	if !p.hasUntriedGateway(q) {
		h.markIneligible(IneligibleFailed)
		return rankIneligible, routeCost{}, ""
	}
	m, why := q.findEligible(p.Summary)
	if m == nil {
		if p.Drained || p.Summary.Draining {
			why = IneligibleDraining // the drain is why its workers accept nothing
		}
		h.markIneligible(why)
		return rankIneligible, routeCost{}, ""
	}
	h.addTerm(decision.TermRTT, p.routeRTT(q).Seconds())
	s = q.estimateCost(m, capacity.Path{Region: p.Region}, p.State == capacity.Fresh, h)
	s.ttft += p.routeRTT(q).Seconds()
	if p.Drained || p.Summary.Draining {
		h.markIneligible(IneligibleDraining)
		return rankIneligible, routeCost{}, ""
	}
	if drop, held := p.whyForbidden(q); drop != "" {
		h.markIneligible(drop)
		return rankIneligible, s, held
	}
	if local {
		if drop, held := p.whyHeld(q, m, now); drop != "" {
			h.markIneligible(drop)
			return rankIneligible, s, held
		}
	}
	if p.State == capacity.Unreachable {
		h.markIneligible(IneligibleUnreachable)
		return rankUnreachable, s, ""
	}
	return rankHealthy, s, ""
}

// whyForbidden returns why the query may not go to the peer regardless of its capacity; empty when it may.
func (p *PeerRegion) whyForbidden(q *RouteQuery) (drop, held string) {
	switch {
	case q.Hops > 0:
		return IneligibleHops, SpillHeldHops
	case !q.Spill:
		return IneligibleSpillOff, SpillHeldOff
	case !q.permitsPeer(p):
		return IneligibleResidency, SpillHeldResidency
	case q.ExcludedPeer == p.Region || q.ExcludedPeer == ExcludeAllPeers:
		return IneligibleRefused, SpillHeldRefused
	}
	return "", ""
}

// whyHeld returns why a query that its own region can serve does not go to the peer; empty when it may.
func (p *PeerRegion) whyHeld(q *RouteQuery, m *capacity.ModelCapacity, now time.Time) (drop, held string) {
	switch {
	case p.State != capacity.Fresh && !p.Unreported:
		return IneligibleNotFresh, SpillHeldNotFresh
	case m.Headroom[q.Class] <= 0:
		return IneligibleNoHeadroom, SpillHeldNoHeadroom
	case q.isSpillPaused(p.Region, now):
		return IneligiblePaused, SpillHeldRefused
	case !q.hasSpillBudget(p.Region, q.SpillShare*p.headroomFor(q), now):
		return IneligibleSpillBudget, SpillHeldBudget
	}
	return "", ""
}

// hasUntriedGateway reports whether a gateway of the peer has not failed the query.
func (p *PeerRegion) hasUntriedGateway(q *RouteQuery) bool {
	for i := range p.Gateways {
		if !q.isExcluded(p.Gateways[i].Endpoint) {
			return true
		}
	}
	return false
}

// pickGateway returns a random one of the peer's gateways that have not failed the query. There is at least one, because
// the peer is ineligible otherwise.
func (p *PeerRegion) pickGateway(q *RouteQuery, rng *rand.Rand) PeerGateway {
	var chosen PeerGateway
	n := 0
	for _, g := range p.Gateways {
		if q.isExcluded(g.Endpoint) {
			continue
		}
		if n++; n == 1 || rng.IntN(n) == 0 {
			chosen = g
		}
	}
	return chosen
}
