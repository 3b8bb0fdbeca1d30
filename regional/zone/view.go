package zone

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// View is what a gateway knows at one moment. It is immutable.
type View struct {
	// Locals are the instances of the region's local tier.
	Locals []Local
	// Peers are the other regions, as the last directive told.
	Peers []Peer
	// Drained: the operator has drained the whole region. What still arrives goes to a peer if one may take it.
	Drained bool
}

// Unheard says that an endpoint is a gateway of a peer of which nobody tells any more.
func (v *View) Unheard(endpoint string) bool {
	for i := range v.Peers {
		for _, g := range v.Peers[i].Gateways {
			if g.Endpoint == endpoint {
				return v.Peers[i].Unheard
			}
		}
	}
	return false
}

// Local is one instance of a zone.
type Local struct {
	Summary *capacity.Summary // its newest statement; never nil
	State   capacity.Freshness
	Age     time.Duration
	// Drained: the operator has drained its zone.
	Drained bool
	// Weight of its zone among near-equal ones; 0 stands for 1.
	Weight float64
}

// Peer is another region.
type Peer struct {
	Region    string
	Gateways  []PeerGateway
	Summary   *capacity.Summary // nil when nothing is known of it
	State     capacity.Freshness
	Age       time.Duration
	RTT       time.Duration // from this region; zero when unknown
	Residency []string      // the jurisdictions that it counts as
	Drained   bool
	// Unheard: whoever tells of peers is silent, and this one was well by the last word. It is asked all the same, for it lets in
	// only what is sooner there by what it knows itself.
	Unheard bool
}

// PeerGateway is where a peer takes requests from other regions.
type PeerGateway struct {
	Name, Endpoint string
}

// Verdict says where a request goes. It names either a local instance or a peer's gateway.
type Verdict struct {
	// Path is the child: region/zone/instance of a local, or only the region of a peer. The ledger is kept by it.
	Path capacity.Path
	// Peer is the gateway of the peer region; empty for a local.
	Peer string
	// Endpoint is where to forward, "host:port".
	Endpoint string
	// Reason is one of the Reason words.
	Reason string
	// Seconds is the predicted time to the first token, and Beside what the request and the answers under way there cost each other,
	// as seconds to a first token.
	Seconds, Beside float64
	// Cached is how much of the prompt the child is believed to have, in tokens.
	Cached int64
	// Within is what the request may cost at a peer, in seconds, the round trip left out, for it to be better off there than at
	// home. 0: nothing at home can serve it.
	Within float64
	// Rate is the budget that the spill is taken out of, in prompt tokens/s.
	Rate float64
	// Held is why a request that would have been sooner at the peer HeldBy was not sent there, one of the Held words; empty
	// when it was, or none would have been.
	Held, HeldBy string
}

// Cost is what verdicts are compared by, in seconds.
func (v *Verdict) Cost() float64 { return v.Seconds + v.Beside }

// worth is what the request may cost elsewhere for it to leave: less by the margin, and by as large a part of what it costs beside
// others as that differs between zones that count as alike. Answers that end within a statement's age change it by so much.
func (v *Verdict) worth(q *Query) float64 {
	return v.Cost() - q.Margin.Seconds() - (nearShare-1)*v.Beside
}

// Spilled reports whether the request leaves the region.
func (v *Verdict) Spilled() bool { return v.Peer != "" }

// The reasons of a verdict, and of none.
const (
	ReasonSoonest      = "soonest"           // the zone with the least predicted seconds
	ReasonNearEqual    = "near_equal"        // one of several that are as good as the best
	ReasonNoLocal      = "no_local_capacity" // spilled: nothing here can serve it
	ReasonPeerSooner   = "peer_sooner"       // spilled: a peer is sooner by more than the margin
	ReasonRegionDrain  = "region_drained"    // spilled: the region is drained
	ReasonCold         = "cold_start"        // nothing is ready anywhere: the zone loads the model first
	ReasonLastResort   = "last_resort"       // draining or lost, and nothing better is left
	ReasonNoneServes   = "none_serves"       // no candidate at all
	DropModel          = "model not served"
	DropNotReady       = "no ready worker"
	DropContext        = "context too long"
	DropExcluded       = "already failed this request"
	DropDraining       = "draining"
	DropLost           = "lost"
	DropUnreachable    = "unreachable"
	DropResidency      = "residency"
	DropNoNews         = "nothing is known of it"
	DropNotFresh       = "its headroom is not fresh"
	DropNoHeadroom     = "no headroom"
	DropHops           = "hop limit"
	DropSpillForbidden = "spill is switched off"
	DropBudget         = "the spill budget is spent"
	DropRefused        = "it has refused lately"
	DropBarred         = "it has refused this request"
)

// BarAll bars every peer: one has refused the request, and home can serve it.
const BarAll = "*"

// Why a spill is held back, in the words of metrics.
const (
	HeldMargin     = "margin"      // the peer is sooner, and not by enough
	HeldNotFresh   = "stale"       // its headroom is too old to be believed
	HeldNoHeadroom = "no_headroom" // it has none
	HeldBudget     = "budget"      // this region's part of it is spent
	HeldRefused    = "refused"     // it has refused this request, or another lately
	HeldResidency  = "residency"   // the tenant may not be served there
	HeldHops       = "hop_limit"   // another region sent the request here
	HeldOff        = "off"         // the spec allows no spilling
)
