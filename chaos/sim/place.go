package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/rival"
)

// outstanding is SkyWalker's limit of requests at a replica, where it goes by a fixed one.
const outstanding = 10

// place is what the rule says of a request.
func (r *run) place(x *ride, p *pusher, blocks []uint64) rival.Place {
	bytes := int64(x.req.PromptTokens) * bytesPerToken
	switch p.rule {
	case gorgo, gorgoPriced:
		return p.cheapest(r, x, blocks)
	case prequalPool:
		return p.probedOne(r)
	}
	p.states, p.others = p.states[:0], p.others[:0]
	for _, t := range p.replicas {
		s := rival.Replica{Pending: t.said.pending, Load: t.load, Down: t.said.down}
		switch p.rule {
		case blind:
			s.Pending = 0
		case fixedLimit:
			s.Pending = max(0, t.load-outstanding+1)
		}
		p.states = append(p.states, s)
	}
	for _, t := range p.peers {
		if t == nil {
			p.others = append(p.others, rival.Peer{Down: true})
			continue
		}
		p.others = append(p.others, rival.Peer{Available: t.said.available, Queue: t.said.queue, Load: t.load, Down: t.said.down})
	}
	return p.sky.Choose(blocks, bytes, p.states, p.others, x.from != nil)
}

// cheapest is GORGO's choice among the region's replicas and its peers.
func (p *pusher) cheapest(r *run, x *ride, blocks []uint64) rival.Place {
	q := int64(x.req.PromptTokens)
	p.nodes = p.nodes[:0]
	for i, t := range p.replicas {
		p.nodes = append(p.nodes, rival.Node{
			Unmatched: q - p.tries.Match(int32(i), blocks)/bytesPerToken, Queued: t.queued, Running: t.running, Local: true, Down: t.said.down,
		})
	}
	if x.from == nil {
		for k, t := range p.peers {
			if t == nil {
				p.nodes = append(p.nodes, rival.Node{Down: true})
				continue
			}
			p.nodes = append(p.nodes, rival.Node{
				RTT: time.Duration(r.rtt(p.region, t.peer.region)).Seconds(), Unmatched: q - p.far.Match(int32(k), blocks)/bytesPerToken,
				Queued: t.said.waits, Running: t.said.runs, Down: t.said.down,
			})
		}
	}
	at := p.prices.Choose(p.nodes)
	switch n := len(p.replicas); {
	case at < 0:
		return rival.Place{Replica: -1, Peer: -1}
	case at < n:
		return rival.Place{Replica: at, Peer: -1}
	default:
		return rival.Place{Replica: -1, Peer: at - n}
	}
}

// probedOne is Prequal's choice, for which it asks three replicas anew.
func (p *pusher) probedOne(r *run) rival.Place {
	at := p.pool.Choose(r.time(r.now), p.rng)
	for _, i := range p.pool.Targets(p.rng) {
		t := p.replicas[i]
		if s := r.stateOf(t.worker); s.down {
			continue
		}
		g := t.worker.engine.Gauges()
		n := int64(g.Running + g.Waiting)
		s, _ := t.latency.Near(n)
		a := rival.ProbeAnswer{Replica: i, InFlight: n, Latency: s}
		r.agenda.add(event{at: r.now + 2*r.inside() + int64(r.s.Staleness.Delay), kind: evAnswer, who: p.at, what: a})
	}
	return rival.Place{Replica: at, Peer: -1}
}
