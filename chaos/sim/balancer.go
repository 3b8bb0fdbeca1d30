package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/baseline"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

// baselineBalancer is one region's balancer of another system. Its state of replicas and peers is the answers to
// probes and what it sent them itself; it queues first come, first served, without tenants, classes, limits or health
// checks other than probes. A request that failed before its first byte is tried once more.
type baselineBalancer struct {
	index            int32
	region           *regionState
	rule             baselineRule
	skyWalker        *baseline.SkyWalker
	gorgo            baseline.GORGO
	prequal          *baseline.Prequal
	rng              *rand.Rand
	replicas         []*balancerTarget
	peers            []*balancerTarget // by region index; nil for its own, and for all if regions are isolated
	queue            []*simulatedRequest
	queueTurnPending bool    // the queue was served less than queueTurn ago
	spillsByPeer     []int64 // by peer
	// Buffers for choices, reused.
	replicaBuf []baseline.SkyWalkerReplica
	peerBuf    []baseline.SkyWalkerPeer
	nodeBuf    []baseline.GORGONode
	// Tries of what was sent to each target, for GORGO.
	replicaPrefixes, peerPrefixes *prefix.Index
}

// balancerTarget is a replica or a peer, as a balancer sees it.
type balancerTarget struct {
	worker    *simulatedWorker
	peer      *baselineBalancer
	lastProbe probeResult
	inflight  int64 // requests from this balancer
	// Tokens from this balancer that wait for their first token, and of those after it.
	queuedTokens, runningTokens int64
	latency                     perfmodel.FirstTokenLatency
}

// queueTurn is the interval at which SkyWalker serves its queue.
const queueTurn = int64(10 * time.Millisecond)

// addBalancers adds a baseline's balancer to each region.
func (r *simulation) addBalancers() {
	for i, reg := range r.regions {
		p := &baselineBalancer{index: int32(i), region: reg, rule: r.baseline, spillsByPeer: make([]int64, len(r.regions)), rng: rand.New(rand.NewPCG(r.scenario.Seed, seedGateways<<32|uint64(i)))}
		p.gorgo.PriceQueues = r.baseline == ruleGORGOPriced
		var kv int64
		for _, z := range reg.zones {
			for _, w := range z.workers {
				p.replicas = append(p.replicas, &balancerTarget{worker: w})
				kv = int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
			}
		}
		n := len(p.replicas)
		p.skyWalker = baseline.NewSkyWalker(n, len(r.regions), baseline.MaxPeerQueue, kv, bytesPerToken)
		p.prequal = baseline.NewPrequal(max(n, 1))
		p.replicaPrefixes, p.peerPrefixes = prefix.NewIndex(r.prefixTrieBytes()), prefix.NewIndex(r.prefixTrieBytes())
		for k := range p.replicas {
			p.replicaPrefixes.SetCacheSize(int32(k), kv, bytesPerToken)
		}
		r.balancers = append(r.balancers, p)
	}
	for _, p := range r.balancers {
		for k, o := range r.balancers {
			p.peerPrefixes.SetCacheSize(int32(k), int64(o.replicaKVTokens())*int64(max(len(o.replicas), 1)), bytesPerToken)
			if o == p || r.scenario.IsolateRegions {
				p.peers = append(p.peers, nil)
				continue
			}
			p.peers = append(p.peers, &balancerTarget{peer: o})
		}
		r.events.addEvent(event{kind: evBalancerProbeDue, index: p.index})
	}
}

func (r *simulation) prefixTrieBytes() int {
	if r.prefixIndexBytes > 0 {
		return r.prefixIndexBytes
	}
	return 64 << 20
}

func (p *baselineBalancer) replicaKVTokens() int {
	if len(p.replicas) == 0 {
		return 0
	}
	return p.replicas[0].worker.engine.Gauges().KVBlocks * gpu.BlockTokens
}

// sendToBalancer sends a request from its client to the balancer of its region.
func (r *simulation) sendToBalancer(x *simulatedRequest) {
	late := r.scenario.Network.accessRTT() / 2
	x.accessDelay = late
	r.events.addEvent(event{at: r.now + late, kind: evBalancerArrival, request: x, index: r.clientRegion(x.req).index})
}

// arriveAtBalancer handles the arrival of a request at a balancer.
func (r *simulation) arriveAtBalancer(x *simulatedRequest, p *baselineBalancer) {
	if p.region.down {
		r.refuseRequest(x, codeUnreachable)
		return
	}
	x.balancer = p
	if len(p.queue) > 0 || !r.tryPush(x, p) {
		p.queue = append(p.queue, x)
	}
}

// drainQueue pushes the first waiting request if there is a target, and again queueTurn later: until the next probe a
// replica counts as free, and all waiting requests would go there at once.
func (r *simulation) drainQueue(p *baselineBalancer) {
	if len(p.queue) == 0 || p.queueTurnPending {
		return
	}
	if r.tryPush(p.queue[0], p) {
		p.queue = slices.Delete(p.queue, 0, 1)
		p.queueTurnPending = true
		r.events.addEvent(event{at: r.now + queueTurn, kind: evBalancerQueue, index: p.index})
	}
}

// tryPush sends a request to the target of the rule; false when it must wait.
func (r *simulation) tryPush(x *simulatedRequest, p *baselineBalancer) bool {
	blocks := r.promptBlocks(x.req)
	to := r.chooseTarget(x, p, blocks)
	if to.StaysQueued() {
		return false
	}
	p.skyWalker.RecordSent(to, blocks)
	if to.Replica >= 0 {
		p.replicaPrefixes.InsertPrompt(int32(to.Replica), blocks)
		t := p.replicas[to.Replica]
		x.replica = t
		t.inflight++
		t.queuedTokens += int64(x.req.PromptTokens)
		r.events.addEvent(event{at: r.now + r.zoneDelay(), kind: evReplicaArrival, request: x})
		return true
	}
	p.peerPrefixes.InsertPrompt(int32(to.Peer), blocks)
	t := p.peers[to.Peer]
	late, ok := r.requestDelay(p.region, t.peer.region)
	if !ok {
		t.lastProbe.down = true
		return false
	}
	t.inflight++
	x.spilledAt, x.accessDelay = t, x.accessDelay+r.regionRTT(p.region, t.peer.region)/2
	p.spillsByPeer[to.Peer]++
	r.events.addEvent(event{at: r.now + late, kind: evBalancerArrival, request: x, index: t.peer.index})
	return true
}

// handleBalancerEvent processes an event of the baselines' balancers.
func (r *simulation) handleBalancerEvent(e *event) {
	switch e.kind {
	case evBalancerProbeDue:
		r.probeAll(r.balancers[e.index])
	case evBalancerProbeResult:
		r.recordProbeResults(r.balancers[e.index], e.payload.([]probeResult))
	case evBalancerPeerResult:
		r.recordPeerProbe(r.balancers[e.index], e.payload.(peerProbeResult))
	case evPrequalProbeResult:
		a := e.payload.(baseline.ProbeAnswer)
		a.At = r.timeAt(r.now)
		r.balancers[e.index].prequal.AddAnswer(a)
	case evBalancerQueue:
		p := r.balancers[e.index]
		p.queueTurnPending = false
		r.drainQueue(p)
	case evBalancerArrival:
		r.arriveAtBalancer(e.request, r.balancers[e.index])
	case evReplicaArrival:
		r.arriveAtReplica(e.request)
	}
}
