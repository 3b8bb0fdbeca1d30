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
