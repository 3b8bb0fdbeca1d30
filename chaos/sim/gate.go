package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional"
)

// unreachable is the code of requests whose client could reach no gateway.
const unreachable = "unreachable"

// A client whose gateway does not answer waits for so long, asks its resolver anew, and tries so often.
const (
	connectFor  = int64(time.Second)
	connectMost = 3
)

// set a request on its way from its client.
func (r *run) depart(x *ride) {
	door := r.resolve(x, x.tries > 0)
	to, from := door.region, r.clientOf(x.req)
	late := r.s.Network.access() / 2
	x.home, x.access = door, late
	if to != from {
		far, ok := r.way(from, to)
		if !ok {
			r.nobody(x)
			return
		}
		late, x.access = late+far, late+r.rtt(from, to)/2
	}
	r.agenda.add(event{at: r.now + late, kind: evReach, ride: x})
}

func (r *run) clientOf(q *load.Request) *region {
	if i := int(q.Region); i > 0 && i < len(r.regions) {
		return r.regions[i]
	}
	return r.regions[0]
}

// nobody answers at a gateway: the client waits and asks for another.
func (r *run) nobody(x *ride) {
	if x.tries++; x.tries >= connectMost {
		r.refuse(x, unreachable)
		return
	}
	r.agenda.add(event{at: r.now + connectFor, kind: evReach, ride: x, what: true})
}

// reach takes a request at a gateway's front door.
func (r *run) reach(x *ride, anew bool) {
	if anew {
		r.depart(x)
		return
	}
	g := x.home
	if g.down {
		r.nobody(x)
		return
	}
	req, refusal := g.lab.Take(r.asks(x), r.time(r.now))
	if refusal != nil {
		r.refuse(x, refusal.Code)
		return
	}
	x.own = req
	r.choose(x)
}

// asks is a request as a gateway reads it.
func (r *run) asks(x *ride) *regional.LabAsk {
	q := x.req
	r.marked = r.marks(q)
	a := &regional.LabAsk{
		Tenant: r.tenant(q.Tenant), Model: r.model(q.Model), Service: r.service, Cell: r.cells[r.clientOf(q).at], Class: r.class(q),
		Prompt: r.estimate(q), Prefix: r.marked, Session: r.keyOf(q),
		Client: resolverAddr(r.clientOf(q).at, int32(mix(q.Session)%uint64(r.s.Steering.resolvers()))),
	}
	if r.s.Limits != nil {
		a.MaxTokens = r.s.Limits(q)
	}
	return a
}

// marks are a prompt's beginnings as sketches name them.
func (r *run) marks(q *load.Request) []uint64 {
	return gpu.Cut(r.marked[:0], q.Prompt, func(i int) int {
		switch {
		case i >= capacity.MaxLandmarks:
			return 0
		case i == 0:
			return capacity.LandmarkEnd(0) / bytesPerToken
		}
		return (capacity.LandmarkEnd(i) - capacity.LandmarkEnd(i-1)) / bytesPerToken
	})
}

// choose has the gateway that took a request choose where it goes.
func (r *run) choose(x *ride) {
	g := x.home
	v, ok := g.lab.Choose(x.own, r.time(r.now))
	if !ok {
		r.refuse(x, openai.CodeNoCapacity)
		return
	}
	if !v.Spilled() {
		r.agenda.add(event{at: r.now + r.inside(), kind: evEnter, ride: x, what: r.ends[v.Endpoint]})
		return
	}
	peer := r.peers[v.Endpoint]
	late, ok := r.way(g.region, peer.region)
	x.within = v.Within
	if !ok || peer.down {
		g.lab.Leave(x.own, openai.Usage{}, false)
		g.lab.Suspect(v.Endpoint, r.time(r.now))
		r.again(x)
		return
	}
	x.peer = peer
	r.agenda.add(event{at: r.now + late, kind: evGuest, ride: x})
}

// guest takes a request at a peer region's gateway, or sends it home.
func (r *run) guest(x *ride) {
	if r.strayed(x) {
		return
	}
	g := x.peer
	if !g.down {
		if x.guest = g.lab.Guest(r.asks(x), x.within, r.time(r.now)); x.guest != nil {
			if v, ok := g.lab.Choose(x.guest, r.time(r.now)); ok && !v.Spilled() {
				x.home.spills[g.region.at]++
				r.agenda.add(event{at: r.now + r.inside(), kind: evEnter, ride: x, what: r.ends[v.Endpoint]})
				return
			}
			x.guest = nil
		}
	}
	late, _ := r.way(x.home.region, g.region)
	r.agenda.add(event{at: r.now + late, kind: evHome, ride: x})
}

// comeHome takes a request back that a peer has refused.
func (r *run) comeHome(x *ride) {
	if r.strayed(x) {
		return
	}
	g, now := x.home, r.time(r.now)
	x.peer = nil
	r.out.SpillsRefused++
	g.lab.Leave(x.own, openai.Usage{}, false)
	if g.lab.Judged(x.own, true, now) {
		r.choose(x)
		return
	}
	r.again(x)
}

// again tries a request once elsewhere that came to nothing where it was sent.
func (r *run) again(x *ride) {
	if x.home.down {
		r.refuse(x, unreachable)
		return
	}
	if !x.home.lab.Again(x.own, r.time(r.now)) {
		r.refuse(x, openai.CodeNoCapacity)
		return
	}
	r.out.Retried++
	r.choose(x)
}

// turnedAway is a request that a zone has refused, or lost before its first byte.
func (r *run) turnedAway(x *ride, code string) {
	elsewhere := code == openai.CodeNoCapacity || code == openai.CodeUpstream || code == openai.CodeModelNotFound
	if x.own == nil || !elsewhere || x.made > 0 {
		r.refuse(x, code)
		return
	}
	if x.visit != nil {
		x.agent.lab.Forget(x.visit)
		x.visit = nil
	}
	if x.guest != nil {
		x.peer.lab.Leave(x.guest, openai.Usage{}, false)
		x.guest = nil
		late, _ := r.way(x.home.region, x.peer.region)
		r.agenda.add(event{at: r.now + late, kind: evHome, ride: x})
		return
	}
	x.home.lab.Leave(x.own, openai.Usage{}, false)
	r.again(x)
}

// begun books at the gateways that an answer has begun.
func (r *run) begun(x *ride) {
	if x.own == nil {
		return
	}
	x.home.lab.FirstByte(x.own)
	if x.guest != nil {
		x.peer.lab.FirstByte(x.guest)
		x.home.lab.Judged(x.own, false, r.time(r.now))
	}
}

// leave books a request out of the gateways, however it ended.
func (r *run) leave(x *ride, u openai.Usage, whole bool) {
	if x.own == nil {
		return
	}
	if x.guest != nil {
		x.peer.lab.Leave(x.guest, u, whole)
	}
	x.home.lab.Leave(x.own, u, whole)
	x.home.lab.Settle(x.own, r.time(r.now))
}

// back is how long an answer takes from its worker to its client.
func (r *run) back(x *ride) int64 {
	if x.push != nil {
		return r.inside() + x.access
	}
	if x.own == nil {
		return 0
	}
	late := r.inside() + x.access
	if x.guest != nil {
		late += r.rtt(x.home.region, x.peer.region) / 2
	}
	return late
}
