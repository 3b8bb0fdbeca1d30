package routing

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// RoutingView is the state of all candidates at one moment. It is immutable.
type RoutingView struct {
	// Locals are the instances of the region's local tier.
	Locals []LocalInstance
	// Peers are the other regions, as the last directive reports them.
	Peers []PeerRegion
	// Live lists the live instances of each zone. A failed connection does not remove an instance, because it is
	// weaker evidence than a summary.
	Live map[string][]PeerGateway
	// Drained is set when the whole region is drained: requests that still arrive go to a peer, if one may serve them.
	Drained bool
}

// isUnreported reports whether an endpoint is a gateway of a peer that is no longer reported.
func (v *RoutingView) isUnreported(endpoint string) bool {
	for i := range v.Peers {
		for _, g := range v.Peers[i].Gateways {
			if g.Endpoint == endpoint {
				return v.Peers[i].Unreported
			}
		}
	}
	return false
}

// LiveInstancesOf returns the live instances of a local instance's zone. It includes that instance even before its
// first summary.
func (v *RoutingView) LiveInstancesOf(of capacity.Path) []PeerGateway {
	out := slices.Clone(v.Live[of.Zone])
	if !slices.ContainsFunc(out, func(x PeerGateway) bool { return x.Name == of.Instance }) && len(out) < maxLiveInstances {
		out = append(out, PeerGateway{Name: of.Instance})
	}
	return out
}

// OutputTokenCost returns the cost of one output token of a model in prefill tokens, from the rates of the region's
// workers.
func (v *RoutingView) OutputTokenCost(model string) float64 {
	var prefill, decode int64
	for i := range v.Locals {
		if m := v.Locals[i].Summary.FindModel(model); m != nil {
			prefill += m.PrefillRate()
			decode += m.DecodeRate()
		}
	}
	if prefill <= 0 || decode <= 0 {
		return defaultDecodeCost
	}
	return min(max(float64(prefill)/float64(decode), minDecodeCost), maxDecodeCost)
}

// PeerRegion is another region.
type PeerRegion struct {
	Region    string
	Gateways  []PeerGateway
	Summary   *capacity.Summary // nil when the region has not reported
	State     capacity.Freshness
	Age       time.Duration
	RTT       time.Duration // from this region; zero when unknown
	Residency []string      // the jurisdictions that it counts as
	Drained   bool          // a drain is in progress or complete: it receives no spills
	// Unreported is set when the global tier is silent and the peer was healthy by its last report. It still receives
	// requests, because its gateway admits only those that are sooner there by its own state.
	Unreported bool
}

// PeerGateway is a gateway of a peer region, or an instance of a zone, with the address at which it accepts forwarded
// requests.
type PeerGateway struct {
	Name, Endpoint string
}

// candidateRank is the first criterion by which candidates are ordered; their cost is the second.
type candidateRank uint8

const (
	rankHealthy candidateRank = iota
	rankCold                  // no worker is ready, and the zone can load the model or wake a worker
	rankDraining
	rankUnreachable
	rankIneligible // cannot serve the query at all
)

// ChooseRoute returns the endpoint for q, or ok=false when no endpoint is eligible. It reads only its arguments: the same
// inputs give the same decision. It does not allocate when rec is nil.
//
// Order: healthy instances against a healthy peer, by cost; then peers against instances that must load the model first,
// by cost; then draining instances; then unreachable ones, because an instance without summaries may still serve.
func ChooseRoute(q *RouteQuery, v *RoutingView, now time.Time, rng *rand.Rand, rec *explain.Explanation) (RouteDecision, bool) {
	return chooseRoute(q, v, now, rng, costSink{rec: rec})
}

func chooseRoute(q *RouteQuery, v *RoutingView, now time.Time, rng *rand.Rand, sink costSink) (RouteDecision, bool) {
	rec := sink.rec
	local, localOK, best := v.chooseLocal(q, rng, sink)
	peer, peerOK := v.choosePeer(q, localOK && best == rankHealthy && !v.Drained, now, rng, sink)
	verdict, ok := pickLocalOrPeer(q, v, local, localOK, best, peer, peerOK)
	verdict.setSpillHeld(q, &peer, ok && localOK && best == rankHealthy, peerOK)
	if !ok {
		rec.SetChosen("", ReasonNoneServes)
		return verdict, false
	}
	if rec.IsRecording() {
		rec.Policy = "predictive"
		name := verdict.Path.String()
		rec.SetChosen(name, verdict.Reason)
		if verdict.IsSpilled() {
			rec.AddNote("forwarded to gateway " + verdict.Peer)
		}
	}
	return verdict, true
}

// pickLocalOrPeer decides between the best local instance and the best peer.
func pickLocalOrPeer(q *RouteQuery, v *RoutingView, local RouteDecision, localOK bool, best candidateRank, peer peerDecision, peerOK bool) (RouteDecision, bool) {
	switch {
	case localOK && best == rankHealthy && !v.Drained:
		if left := local.spillThreshold(q); peerOK && peer.rank == rankHealthy && left > peer.TotalSeconds() {
			peer.Reason = ReasonPeerSooner
			peer.SpillCostLimit = max(left-v.peerRTTSeconds(peer.Path.Region), 0.001)
			return peer.RouteDecision, true
		}
		return local, true
	case peerOK && peer.rank == rankHealthy && localOK && best == rankCold && !v.Drained && local.TotalSeconds()+q.Margin.Seconds() < peer.TotalSeconds():
		local.Reason = ReasonCold // loading here is sooner than waiting there
		return local, true
	case peerOK && peer.rank == rankHealthy:
		peer.Reason = ReasonNoLocal
		if v.Drained {
			peer.Reason = ReasonRegionDrain
		}
		return peer.RouteDecision, true
	case localOK:
		switch best {
		case rankHealthy:
		case rankCold:
			local.Reason = ReasonCold
		default:
			local.Reason = ReasonLastResort
		}
		return local, true
	case peerOK:
		peer.Reason = ReasonLastResort
		return peer.RouteDecision, true
	}
	return RouteDecision{}, false
}

// chooseLocal returns the best instance of the best rank.
func (v *RoutingView) chooseLocal(q *RouteQuery, rng *rand.Rand, sink costSink) (RouteDecision, bool, candidateRank) {
	best, least := rankIneligible, 0.0
	for i := range v.Locals {
		r, p := v.Locals[i].computeCost(q, rng, sink)
		if r == rankIneligible {
			continue
		}
		s := p.totalSeconds()
		if r < best || r == best && s < least {
			best, least = r, s
		}
	}
	if best == rankIneligible {
		return RouteDecision{}, false, rankIneligible
	}
	i, p, near := v.pickNearEqual(q, best, least, rng)
	l := &v.Locals[i]
	reason := ReasonSoonest
	if near > 1 {
		reason = ReasonNearEqual
	}
	return RouteDecision{Path: l.Summary.Path, Endpoint: l.Summary.Endpoint, Reason: reason, TTFTSeconds: p.ttft, Interference: p.interference, CachedTokens: q.creditedTokens(l.Summary, l.Summary.Path, l.State)}, true, best
}

// pickNearEqual picks among the candidates whose cost is near-equal to the best: it draws two by the zones' weights and
// returns the better one (power of two choices). A new session is assigned by its hash, so that all gateways send it to
// the same candidate.
func (v *RoutingView) pickNearEqual(q *RouteQuery, best candidateRank, least float64, rng *rand.Rand) (at int, cost routeCost, near int) {
	limit := max(least+nearEqualSeconds, least*nearEqualFactor)
	first, second := drawnCandidate{score: -1}, drawnCandidate{score: -1}
	for i := range v.Locals {
		r, p := v.Locals[i].computeCost(q, rng, costSink{})
		if r != best || p.totalSeconds() > limit {
			continue
		}
		near++
		d := drawnCandidate{index: i, routeCost: p}
		if w := v.Locals[i].zoneWeight(); q.Session != 0 {
			d.score = rendezvousScore(q.Session, v.Locals[i].Summary.Path, w)
		} else {
			d.score = w / -math.Log(1-rng.Float64()) // the largest scores are a weighted draw without replacement (Efraimidis and Spirakis 2006)
		}
		switch {
		case d.score > first.score:
			first, second = d, first
		case d.score > second.score:
			second = d
		}
	}
	if q.Session == 0 && near > 1 && second.totalSeconds() < first.totalSeconds() {
		first = second
	}
	return first.index, first.routeCost, near
}

// drawnCandidate is a candidate with the score of its draw.
type drawnCandidate struct {
	routeCost
	index int
	score float64
}

// rendezvousScore returns the score of a candidate for a session by weighted rendezvous hashing (Schindelhauer and
// Schomaker 2005); it is above 0.
func rendezvousScore(session uint64, p capacity.Path, weight float64) float64 {
	h := session
	for _, part := range [...]string{p.Zone, p.Instance} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3
	}
	return weight / -math.Log(unitInterval(h))
}
