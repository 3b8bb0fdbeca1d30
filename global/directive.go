package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// directive is what a gateway is told: policy as agreed, and its peers as this node sees them.
func (s *Server) directive(to capacity.Path) *uplink.Directive {
	v := s.view.Load()
	if v == nil || v.from == firstState {
		return nil // a file that nobody has agreed on is enough to answer from, not to serve by
	}
	d := &uplink.Directive{
		Generation: v.state.Generation, Index: v.state.Index, SpecVersion: v.version, Spec: v.text, PlanEpoch: v.state.PlanEpoch,
		Peers: v.peers(v.region(to.Region), time.Now()),
	}
	d.Grant = s.grant(to)
	for _, x := range v.state.Drains {
		d.Drains = append(d.Drains, uplink.Drain{Path: x.Path, Until: x.Until, Reason: x.Reason})
	}
	v.try(d, to.Region)
	for _, k := range v.ticketKeys(to) {
		d.TicketKeys = append(d.TicketKeys, k.Secret)
	}
	return d
}

// admitGateway is the rule for gateways: once a spec is agreed on, their region must be in it.
func (s *Server) admitGateway(id identity.ID) error {
	v := s.view.Load()
	if v == nil || v.from == firstState || v.region(id.Region) >= 0 {
		return nil
	}
	return fmt.Errorf("region %q is not in the spec (version %d): add it to the spec, or correct region in the gateway's configuration", id.Region, v.version)
}

// ticketKeys are the keys that a gateway opens tickets with. Their holder can make tickets for every tenant, so only
// gateways that the spec lists get them.
func (v *View) ticketKeys(of capacity.Path) []consensus.Key {
	if r := v.region(of.Region); r < 0 || !declares(&v.spec.Regions[r], of.Instance) {
		return nil
	}
	return v.state.TicketKeys
}

// peers are the regions other than self. Demand, networks, round trips and acks are nobody else's business and stay out.
func (v *View) peers(self int, now time.Time) []uplink.Peer {
	var out []uplink.Peer
	for r := range v.regions {
		x, decl := &v.regions[r], &v.spec.Regions[r]
		if r == self || !x.heard {
			continue
		}
		sum := x.group.Summary
		sum.Demand, sum.Acks, sum.RTTs, sum.Networks, sum.Outcomes = nil, nil, nil, nil, nil
		sum.Uses, sum.Holding = nil, capacity.Holding{}
		sum.Draining = sum.Draining || x.drained
		p := uplink.Peer{Region: decl.Name, Summary: &sum, Age: x.group.Age + now.Sub(v.made)}
		if self >= 0 {
			p.RTT, p.RTTSamples = v.path(self, r)
		}
		for _, c := range v.children.Children {
			if c.Summary.Path.Region == decl.Name && declares(decl, c.Summary.Path.Instance) && c.State != capacity.Lost && c.Summary.Endpoint != "" {
				p.Gateways = append(p.Gateways, uplink.PeerGateway{Name: c.Summary.Path.Instance, Endpoint: c.Summary.Endpoint})
			}
		}
		out = append(out, p)
	}
	return out
}
