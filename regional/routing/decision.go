package routing

import "github.com/spillway-lb/spillway/internal/capacity"

// RouteDecision is the endpoint chosen for a request: a local instance or a peer's gateway.
type RouteDecision struct {
	// Path is the child in the ledger: region/zone/instance of a local instance, or only the region of a peer.
	Path capacity.Path
	// Peer is the gateway of the peer region; empty for a local instance.
	Peer string
	// Endpoint is the address to forward to, "host:port".
	Endpoint string
	// Reason is one of the Reason constants.
	Reason string
	// TTFTSeconds is the predicted time to the first token. Interference is the cost of the slowdown between the
	// request and the responses in progress there, in seconds of TTFT.
	TTFTSeconds, Interference float64
	// CachedTokens is the expected number of prompt tokens in the child's KV cache.
	CachedTokens int64
	// SpillCostLimit is the highest cost at the peer, in seconds and without the round trip, for which the request is
	// better served there than in its own region. 0: nothing in its own region can serve it.
	SpillCostLimit float64
	// SpillRate is the rate of the spill budget from which the spill is taken, in prompt tokens/s.
	SpillRate float64
	// SpillHeld is why a request that would have been sooner at the peer SpillHeldPeer was not sent there, one of the
	// SpillHeld constants; empty when it was sent there, or would not have been sooner anywhere.
	SpillHeld, SpillHeldPeer string
}

// TotalSeconds is the cost by which candidates are compared, in seconds.
func (v *RouteDecision) TotalSeconds() float64 { return v.TTFTSeconds + v.Interference }

// MeetsTarget reports whether the first token is predicted within target seconds. A last resort predicts nothing.
func (v *RouteDecision) MeetsTarget(target float64) bool {
	return v.TTFTSeconds <= target && v.Reason != ReasonLastResort
}

// spillThreshold returns the cost below which a peer is better: the cost here, less the margin, less the part of the
// interference by which near-equal zones differ. Responses that end within the age of a summary change it by as much.
func (v *RouteDecision) spillThreshold(q *RouteQuery) float64 {
	return v.TotalSeconds() - q.Margin.Seconds() - (nearEqualFactor-1)*v.Interference
}

// IsSpilled reports whether the request leaves the region.
func (v *RouteDecision) IsSpilled() bool { return v.Peer != "" }

// setSpillHeld sets why a request that stays would have been sooner at a peer, if it would.
func (v *RouteDecision) setSpillHeld(q *RouteQuery, peer *peerDecision, home, peerOK bool) {
	if v.IsSpilled() {
		return
	}
	held := peer.bestHeld
	if peerOK && peer.rank == rankHealthy && (held.reason == "" || peer.TotalSeconds() <= held.seconds) {
		held = heldSpill{peer.Path.Region, SpillHeldMargin, peer.TotalSeconds()}
	}
	if held.reason == "" || home && v.TotalSeconds() <= held.seconds || home && held.reason != SpillHeldMargin && v.spillThreshold(q) <= held.seconds {
		return
	}
	v.SpillHeld, v.SpillHeldPeer = held.reason, held.region
}

// The reasons of a decision.
const (
	ReasonSoonest     = "soonest"           // the zone with the lowest predicted cost
	ReasonNearEqual   = "near_equal"        // one of several near-equal zones
	ReasonNoLocal     = "no_local_capacity" // spilled: no zone of this region can serve it
	ReasonPeerSooner  = "peer_sooner"       // spilled: a peer is sooner by more than the margin
	ReasonRegionDrain = "region_drained"    // spilled: the region is drained
	ReasonCold        = "cold_start"        // no worker is ready: the zone loads the model first
	ReasonLastResort  = "last_resort"       // a draining or unreachable endpoint, because no other is left
	ReasonNoneServes  = "none_serves"       // no candidate is eligible
	ReasonResidency   = "residency"         // the tenant may not be served in this region
)

// Why a candidate is ineligible, as spillway explain prints it.
const (
	IneligibleModel       = "model not served"
	IneligibleNotReady    = "no ready worker"
	IneligibleContext     = "prompt exceeds the context length"
	IneligibleFailed      = "already failed this request"
	IneligibleDraining    = "draining"
	IneligibleUnreachable = "unreachable: no recent report"
	IneligibleNoGateway   = "no reachable gateway"
	IneligibleResidency   = "excluded by the tenant's regions or residency"
	IneligibleNoReport    = "no report received"
	IneligibleNotFresh    = "last report too old for a spill"
	IneligibleNoHeadroom  = "no headroom for a spill"
	IneligibleHops        = "already forwarded once between regions"
	IneligibleSpillOff    = "spill is off (routing.spill)"
	IneligibleSpillBudget = "spill budget used up"
	IneligiblePaused      = "spill paused after a refusal"
	IneligibleRefused     = "a peer region refused this request"
)

// ExcludeAllPeers excludes every peer: one has refused the request, and its own region can serve it.
const ExcludeAllPeers = "*"

// Why a spill is held back, as metric labels.
const (
	SpillHeldMargin     = "margin"      // the peer is sooner by less than the margin
	SpillHeldNotFresh   = "stale"       // the peer's headroom is too old
	SpillHeldNoHeadroom = "no_headroom" // the peer has no headroom
	SpillHeldBudget     = "budget"      // this gateway's share of the peer's headroom is used up
	SpillHeldRefused    = "refused"     // the peer has refused this request, or another one lately
	SpillHeldResidency  = "residency"   // the tenant may not be served there
	SpillHeldHops       = "hop_limit"   // another region sent the request here
	SpillHeldOff        = "off"         // the spec does not allow spills
)
