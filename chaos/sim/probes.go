package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/rival"
)

// probeEvery is how often a balancer asks, where the scenario does not say how often workers are looked at.
const probeEvery = int64(rival.Probe) * int64(time.Millisecond)

// probed is what the last probe has said.
type probed struct {
	down      bool
	pending   int64
	available int
	queue     int64
	waits     int64 // tokens that wait at the best of a peer's replicas, and that run there
	runs      int64
}

// askAll has a balancer ask its replicas and its peers. Answers come a round trip later, and as old as the scenario says.
func (r *run) askAll(p *pusher) {
	every := probeEvery
	if r.s.Staleness.Scrape > 0 {
		every = int64(r.s.Staleness.Scrape)
	}
	r.agenda.add(event{at: r.now + every, kind: evProbes, who: p.at})
	if p.region.down {
		return
	}
	said := make([]probed, len(p.replicas)+len(p.peers))
	for i, t := range p.replicas {
		said[i] = r.stateOf(t.worker)
	}
	r.agenda.add(event{at: r.now + 2*r.inside() + int64(r.s.Staleness.Delay), kind: evProbed, who: p.at, what: said[:len(p.replicas)]})
	for k, t := range p.peers {
		if t == nil {
			continue
		}
		late, ok := r.wan(p.region, t.peer.region)
		if !ok || t.peer.region.down {
			r.agenda.add(event{at: r.now + every, kind: evPeerSaid, who: p.at, what: peerSaid{k, probed{down: true}}})
			continue
		}
		r.agenda.add(event{at: r.now + late + int64(r.s.Staleness.Delay), kind: evPeerSaid, who: p.at, what: peerSaid{k, t.peer.state(r)}})
	}
}

// peerSaid is one peer's answer.
type peerSaid struct {
	peer int
	said probed
}

func (r *run) stateOf(w *worker) probed {
	if w.dead > 0 || w.zone.down {
		return probed{down: true}
	}
	w.engine.Settle(r.time(r.now))
	return probed{pending: int64(w.engine.Gauges().Waiting)}
}

// state is what a balancer tells its peers.
func (p *pusher) state(r *run) (s probed) {
	s.queue = int64(len(p.queue))
	least := int64(-1)
	for _, t := range p.replicas {
		now := r.stateOf(t.worker)
		if now.down {
			continue
		}
		if now.pending == 0 {
			s.available++
		}
		if all := t.queued + t.running; least < 0 || all < least {
			least, s.waits, s.runs = all, t.queued, t.running
		}
	}
	s.down = least < 0
	return s
}

// answered takes what replicas have said, and looks at the queue again.
func (r *run) answered(p *pusher, said []probed) {
	for i := range said {
		p.replicas[i].said = said[i]
	}
	r.drain(p)
}

func (r *run) peerAnswered(p *pusher, s peerSaid) {
	p.peers[s.peer].said = s.said
	r.drain(p)
}
