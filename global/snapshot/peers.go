package snapshot

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// PeerState is the state of another region, for the gateways of one.
type PeerState struct {
	Region     string
	Summary    *capacity.Summary
	Age        time.Duration // of the summary
	RTT        time.Duration // between the two regions' gateways; valid if the region of the receiver is known
	RTTSamples int64         // 0: RTT is estimated from distance
	Gateways   []PeerEndpoint
}

// PeerEndpoint is a gateway that takes requests from other regions.
type PeerEndpoint struct{ Name, Endpoint string }

// ListPeers returns the regions other than self. Demand, client networks, RTTs and acknowledgements concern only the
// region itself and are left out.
func (v *SteeringSnapshot) ListPeers(self int, now time.Time) []PeerState {
	var out []PeerState
	for r := range v.Regions {
		x, decl := &v.Regions[r], &v.Spec.Regions[r]
		if r == self || !x.HasReport() {
			continue
		}
		sum := x.Group.Summary
		sum.Demand, sum.Acks, sum.RTTs, sum.Networks, sum.Outcomes = nil, nil, nil, nil, nil
		sum.TenantUsages, sum.HeldLeases = nil, capacity.HeldLeases{}
		sum.Draining = sum.Draining || x.Drained
		p := PeerState{Region: decl.Name, Summary: &sum, Age: x.Group.Age + now.Sub(v.MadeAt)}
		if self >= 0 {
			p.RTT, p.RTTSamples = v.RegionRTT(self, r)
		}
		for _, c := range v.Children.Children {
			if c.Summary.Path.Region == decl.Name && DeclaresGateway(decl, c.Summary.Path.Instance) && c.State != capacity.Unreachable && c.Summary.Endpoint != "" {
				p.Gateways = append(p.Gateways, PeerEndpoint{Name: c.Summary.Path.Instance, Endpoint: c.Summary.Endpoint})
			}
		}
		out = append(out, p)
	}
	return out
}

// DeclaresGateway reports whether the spec lists the gateway: a gateway that runs and is not listed gets no clients.
func DeclaresGateway(r *spec.Region, gateway string) bool {
	return slices.ContainsFunc(r.Gateways, func(g spec.Gateway) bool { return g.Name == gateway })
}
