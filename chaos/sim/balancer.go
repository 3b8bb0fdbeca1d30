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

func (p *baselineBalancer) replicaKVTokens() int {
	if len(p.replicas) == 0 {
		return 0
	}
	return p.replicas[0].worker.engine.Gauges().KVBlocks * gpu.BlockTokens
}

// sendToBalancer sends a request from its client to the balancer of its region.
func (bt *baselineTier) sendToBalancer(x *simulatedRequest) {
	late := bt.scenario.Network.accessRTT() / 2
	x.accessDelay = late
	bt.loop.addEvent(event{at: bt.loop.now + late, kind: evBalancerArrival, request: x, index: bt.topology.clientRegion(x.req).index})
}

// arriveAtBalancer handles the arrival of a request at a balancer.
func (bt *baselineTier) arriveAtBalancer(x *simulatedRequest, p *baselineBalancer) {
	if p.region.down {
		bt.requests.refuseRequest(x, codeUnreachable)
		return
	}
	x.balancer = p
	if len(p.queue) > 0 || !bt.tryPush(x, p) {
		p.queue = append(p.queue, x)
	}
}

// drainQueue pushes the first waiting request if there is a target, and again queueTurn later: until the next probe a
// replica counts as free, and all waiting requests would go there at once.
func (bt *baselineTier) drainQueue(p *baselineBalancer) {
	if len(p.queue) == 0 || p.queueTurnPending {
		return
	}
	if bt.tryPush(p.queue[0], p) {
		p.queue = slices.Delete(p.queue, 0, 1)
		p.queueTurnPending = true
		bt.loop.addEvent(event{at: bt.loop.now + queueTurn, kind: evBalancerQueue, index: p.index})
	}
}

// tryPush sends a request to the target of the rule; false when it must wait.
func (bt *baselineTier) tryPush(x *simulatedRequest, p *baselineBalancer) bool {
	blocks := bt.reader.promptBlocks(x.req)
	to := bt.chooseTarget(x, p, blocks)
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
		bt.loop.addEvent(event{at: bt.loop.now + bt.network.zoneDelay(), kind: evReplicaArrival, request: x})
		return true
	}
	p.peerPrefixes.InsertPrompt(int32(to.Peer), blocks)
	t := p.peers[to.Peer]
	late, ok := bt.network.requestDelay(p.region, t.peer.region)
	if !ok {
		t.lastProbe.down = true
		return false
	}
	t.inflight++
	x.spilledAt, x.accessDelay = t, x.accessDelay+bt.network.regionRTT(p.region, t.peer.region)/2
	p.spillsByPeer[to.Peer]++
	bt.loop.addEvent(event{at: bt.loop.now + late, kind: evBalancerArrival, request: x, index: t.peer.index})
	return true
}

// probeInterval is the interval of a balancer's probes if the scenario does not set the scrape interval.
const probeInterval = int64(baseline.ProbeIntervalMillis) * int64(time.Millisecond)

// probeResult is the answer to the last probe.
type probeResult struct {
	down              bool
	pendingRequests   int64
	availableReplicas int
	queueLen          int64
	queuedTokens      int64 // waiting tokens at the best of a peer's replicas, and running tokens there
	runningTokens     int64
}

// probeAll probes a balancer's replicas and peers. Answers arrive a round trip later, with the scenario's staleness.
func (bt *baselineTier) probeAll(p *baselineBalancer) {
	every := probeInterval
	if bt.scenario.Staleness.Interval > 0 {
		every = int64(bt.scenario.Staleness.Interval)
	}
	bt.loop.addEvent(event{at: bt.loop.now + every, kind: evBalancerProbeDue, index: p.index})
	if p.region.down {
		return
	}
	results := make([]probeResult, len(p.replicas)+len(p.peers))
	for i, t := range p.replicas {
		results[i] = bt.probeWorker(t.worker)
	}
	bt.loop.addEvent(event{at: bt.loop.now + 2*bt.network.zoneDelay() + int64(bt.scenario.Staleness.Delay), kind: evBalancerProbeResult, index: p.index, payload: results[:len(p.replicas)]})
	for k, t := range p.peers {
		if t == nil {
			continue
		}
		late, ok := bt.network.datagramDelay(p.region, t.peer.region, SummaryTraffic)
		if !ok || t.peer.region.down {
			bt.loop.addEvent(event{at: bt.loop.now + every, kind: evBalancerPeerResult, index: p.index, payload: peerProbeResult{k, probeResult{down: true}}})
			continue
		}
		bt.loop.addEvent(event{at: bt.loop.now + late + int64(bt.scenario.Staleness.Delay), kind: evBalancerPeerResult, index: p.index, payload: peerProbeResult{k, bt.probePeer(t.peer)}})
	}
}

// peerProbeResult is one peer's answer.
type peerProbeResult struct {
	peer   int
	result probeResult
}

func (bt *baselineTier) probeWorker(w *simulatedWorker) probeResult {
	if w.refusesConnections() || w.zone.down {
		return probeResult{down: true}
	}
	w.engine.SettleTo(bt.loop.currentTime())
	return probeResult{pendingRequests: int64(w.engine.Gauges().Waiting)}
}

// probePeer is a balancer's answer to its peers.
func (bt *baselineTier) probePeer(p *baselineBalancer) (s probeResult) {
	s.queueLen = int64(len(p.queue))
	least := int64(-1)
	for _, t := range p.replicas {
		now := bt.probeWorker(t.worker)
		if now.down {
			continue
		}
		if now.pendingRequests == 0 {
			s.availableReplicas++
		}
		if all := t.queuedTokens + t.runningTokens; least < 0 || all < least {
			least, s.queuedTokens, s.runningTokens = all, t.queuedTokens, t.runningTokens
		}
	}
	s.down = least < 0
	return s
}

// recordProbeResults records the replicas' answers and serves the queue.
func (bt *baselineTier) recordProbeResults(p *baselineBalancer, results []probeResult) {
	for i := range results {
		p.replicas[i].lastProbe = results[i]
	}
	bt.drainQueue(p)
}

func (bt *baselineTier) recordPeerProbe(p *baselineBalancer, s peerProbeResult) {
	p.peers[s.peer].lastProbe = s.result
	bt.drainQueue(p)
}
