package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/rival"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/pick"
)

// pusher is one region's balancer of another system. It knows of its replicas and of its peers what probes have said, and
// what it sent them itself; it queues first come, first served, and knows no tenants, classes, limits or health but whether
// a probe was answered. A request that broke before its first byte is tried once more.
type pusher struct {
	at       int32
	region   *region
	rule     rivalRule
	sky      *rival.SkyWalker
	prices   rival.GORGO
	pool     *rival.Prequal
	rng      *rand.Rand
	replicas []*target
	peers    []*target // by region's place; nil for its own
	queue    []*ride
	turning  bool    // the queue was looked at less than a turn of its loop ago
	spills   []int64 // by peer
	// What choices are made over; kept for the next one.
	states []rival.Replica
	others []rival.Peer
	nodes  []rival.Node
	// Tries of what was sent to whom, for GORGO.
	tries, far *pick.Index
}

// target is a replica or a peer, as a pusher knows it.
type target struct {
	worker *worker
	peer   *pusher
	said   probed
	load   int64 // requests there from here
	// Tokens there from here that wait for their first token, and of those that have had it.
	queued, running int64
	latency         pick.Latency
}

// probed is what the last probe has said.
type probed struct {
	down      bool
	pending   int64
	available int
	queue     int64
	waits     int64 // tokens that wait at the best of a peer's replicas, and that run there
	runs      int64
}

// outstanding is SkyWalker's limit of requests at a replica, where it goes by a fixed one.
const outstanding = 10

// loop is the turn of SkyWalker's queue.
const loop = int64(10 * time.Millisecond)

// probeEvery is how often a balancer asks, where the scenario does not say how often workers are looked at.
const probeEvery = int64(rival.Probe) * int64(time.Millisecond)

// newPushers puts a balancer of another system into each region.
func (r *run) newPushers() {
	for i, reg := range r.regions {
		p := &pusher{at: int32(i), region: reg, rule: r.rival, spills: make([]int64, len(r.regions)), rng: rand.New(rand.NewPCG(r.s.Seed, seedGateways<<32|uint64(i)))}
		p.prices.PriceQueues = r.rival == gorgoPriced
		var kv int64
		for _, z := range reg.zones {
			for _, w := range z.workers {
				p.replicas = append(p.replicas, &target{worker: w})
				kv = int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
			}
		}
		n := len(p.replicas)
		p.sky = rival.NewSkyWalker(n, len(r.regions), rival.SkyQueue, kv, bytesPerToken)
		p.pool = rival.NewPrequal(max(n, 1))
		p.tries, p.far = pick.NewIndex(r.trie()), pick.NewIndex(r.trie())
		for k := range p.replicas {
			p.tries.Reach(int32(k), kv, bytesPerToken)
		}
		r.pushers = append(r.pushers, p)
	}
	for _, p := range r.pushers {
		for k, o := range r.pushers {
			p.far.Reach(int32(k), int64(o.kv())*int64(max(len(o.replicas), 1)), bytesPerToken)
			if o == p {
				p.peers = append(p.peers, nil)
				continue
			}
			p.peers = append(p.peers, &target{peer: o})
		}
		r.agenda.add(event{kind: evProbes, who: p.at})
	}
}

func (r *run) trie() int {
	if r.index > 0 {
		return r.index
	}
	return 64 << 20
}

func (p *pusher) kv() int {
	if len(p.replicas) == 0 {
		return 0
	}
	return p.replicas[0].worker.engine.Gauges().KVBlocks * gpu.BlockTokens
}

// ask has a balancer ask its replicas and its peers. Answers come a round trip later, and as old as the scenario says.
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

// call sets a request on its way from its client to the balancer of its region.
func (r *run) call(x *ride) {
	late := r.s.Network.access() / 2
	x.access = late
	r.agenda.add(event{at: r.now + late, kind: evForwarded, ride: x, who: r.clientOf(x.req).at})
}

// push takes a request at a balancer.
func (r *run) push(x *ride, p *pusher) {
	if p.region.down {
		r.refuse(x, unreachable)
		return
	}
	x.push = p
	if len(p.queue) > 0 || !r.pushed(x, p) {
		p.queue = append(p.queue, x)
	}
}

// drain pushes the first that waits, if there is somewhere to push it, and looks again a turn of the queue's loop later:
// until the next probe a replica counts as free, and all that waits would go there at once.
func (r *run) drain(p *pusher) {
	if len(p.queue) == 0 || p.turning {
		return
	}
	if r.pushed(p.queue[0], p) {
		p.queue = slices.Delete(p.queue, 0, 1)
		p.turning = true
		r.agenda.add(event{at: r.now + loop, kind: evQueue, who: p.at})
	}
}

// pushed sends a request to where the rule says; false when it has to wait.
func (r *run) pushed(x *ride, p *pusher) bool {
	blocks := r.blocks(x.req)
	to := r.place(x, p, blocks)
	if to.Waits() {
		return false
	}
	p.sky.Sent(to, blocks)
	if to.Replica >= 0 {
		p.tries.Insert(int32(to.Replica), blocks)
		t := p.replicas[to.Replica]
		x.there = t
		t.load++
		t.queued += int64(x.req.PromptTokens)
		r.agenda.add(event{at: r.now + r.inside(), kind: evArrived, ride: x})
		return true
	}
	p.far.Insert(int32(to.Peer), blocks)
	t := p.peers[to.Peer]
	late, ok := r.way(p.region, t.peer.region)
	if !ok {
		t.said.down = true
		return false
	}
	t.load++
	x.from, x.access = t, x.access+r.rtt(p.region, t.peer.region)/2
	p.spills[to.Peer]++
	r.agenda.add(event{at: r.now + late, kind: evForwarded, ride: x, who: t.peer.at})
	return true
}

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

// arrived hands a request to its replica's engine.
func (r *run) arrived(x *ride) {
	w := x.there.worker
	x.zone = w.zone
	if w.zone.down {
		r.broke(x)
		return
	}
	if r.s.OnDecision != nil {
		r.s.OnDecision(Decision{
			At: time.Duration(r.now), Request: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Reason: rivals[r.rival],
		})
	}
	r.submit(x, w)
}

// spoke books the first token of a request that another system has placed.
func (r *run) spoke(x *ride) {
	t, n := x.there, int64(x.req.PromptTokens)
	t.queued, t.running = t.queued-n, t.running+n
	t.latency.Observe(t.load, time.Duration(r.now-x.placed).Seconds(), r.time(r.now))
}

// left books a request out of its balancers.
func (r *run) left(x *ride) {
	if t := x.there; t != nil {
		n := int64(x.req.PromptTokens)
		t.load--
		if x.first > 0 {
			t.running -= n
		} else {
			t.queued -= n
		}
		x.there = nil
	}
}

// broke is a request whose replica is gone: it is tried once more if no byte of it has come.
func (r *run) broke(x *ride) {
	p := x.push
	had := x.first > 0
	if x.there != nil {
		x.there.said.down = true // until a probe is answered
	}
	r.left(x)
	x.worker, x.seq = nil, nil
	switch {
	case had:
		r.count(x, func(c *Counts) { c.Cut++ })
		r.end(x, false)
	case x.tries > 0:
		r.refuse(x, openai.CodeUpstream)
	default:
		x.tries++
		r.out.Retried++
		r.push(x, p)
	}
}

// over books a request out of all balancers, however it ended.
func (r *run) over(x *ride) {
	r.left(x)
	if x.from != nil {
		x.from.load--
		x.from = nil
	}
	if x.push != nil {
		r.drain(x.push)
	}
}

// pushing is what happens where another system's balancers stand.
func (r *run) pushing(e *event) {
	switch e.kind {
	case evProbes:
		r.askAll(r.pushers[e.who])
	case evProbed:
		r.answered(r.pushers[e.who], e.what.([]probed))
	case evPeerSaid:
		r.peerAnswered(r.pushers[e.who], e.what.(peerSaid))
	case evAnswer:
		a := e.what.(rival.ProbeAnswer)
		a.At = r.time(r.now)
		r.pushers[e.who].pool.Answered(a)
	case evQueue:
		p := r.pushers[e.who]
		p.turning = false
		r.drain(p)
	case evForwarded:
		r.push(e.ride, r.pushers[e.who])
	case evArrived:
		r.arrived(e.ride)
	}
}
