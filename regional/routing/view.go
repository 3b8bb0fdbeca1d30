package routing

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
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
