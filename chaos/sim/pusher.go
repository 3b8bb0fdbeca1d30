package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/rival"
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
	peers    []*target // by region's place; nil for its own, and for all where regions keep to themselves
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

// loop is the turn of SkyWalker's queue.
const loop = int64(10 * time.Millisecond)

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
			if o == p || r.s.Apart {
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
