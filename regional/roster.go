package regional

import (
	"maps"
	"slices"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// maxRoster bounds the instances of a zone that its locals are told of.
const maxRoster = 64

// roster is the live instances of each zone, by what was heard of them: a connection that failed says less.
type roster map[string][]uplink.PeerGateway

// call makes the roster of what a book says.
func call(children []capacity.Child) roster {
	r := roster{}
	for i := range children {
		s := children[i].Summary
		if at := r[s.Path.Zone]; children[i].State != capacity.Lost && len(at) < maxRoster {
			r[s.Path.Zone] = append(at, uplink.PeerGateway{Name: s.Path.Instance, Endpoint: s.Endpoint})
		}
	}
	return r
}

// callRoll tells the locals of each other when that has changed: they divide their zone's workers among those who are
// there. The first statement of an instance and the loss of one are known to the others within a directive's way down.
func (g *Gateway) callRoll(children []capacity.Child) {
	now := call(children)
	old := g.roster.Swap(&now)
	if g.parent != nil && (old == nil || !maps.EqualFunc(*old, now, slices.Equal[[]uplink.PeerGateway])) {
		g.parent.Wake()
	}
}

// fellows are the live instances of a local's zone. It is one of them although it may not have said anything yet.
func (g *Gateway) fellows(of capacity.Path) []uplink.PeerGateway {
	var out []uplink.PeerGateway
	if r := g.roster.Load(); r != nil {
		out = slices.Clone((*r)[of.Zone])
	}
	if !slices.ContainsFunc(out, func(x uplink.PeerGateway) bool { return x.Name == of.Instance }) && len(out) < maxRoster {
		out = append(out, uplink.PeerGateway{Name: of.Instance})
	}
	return out
}
