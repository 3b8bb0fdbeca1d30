package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// arriveAtReplica passes a request to its replica's engine.
func (bt *baselineTier) arriveAtReplica(x *simulatedRequest) {
	w := x.replica.worker
	if w.zone.down {
		bt.handleReplicaLoss(x)
		return
	}
	if bt.scenario.OnDecision != nil {
		bt.scenario.OnDecision(PlacementDecision{
			At: time.Duration(bt.loop.now), RequestID: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Reason: baselineNames[bt.rule],
		})
	}
	bt.engines.submitToEngine(x, w)
}

// recordReplicaFirstToken records the first token of a request that a baseline placed.
func (bt *baselineTier) recordReplicaFirstToken(x *simulatedRequest) {
	t, n := x.replica, int64(x.req.PromptTokens)
	t.queuedTokens, t.runningTokens = t.queuedTokens-n, t.runningTokens+n
	t.latency.ObserveFirstToken(t.inflight, time.Duration(bt.loop.now-x.placedAt).Seconds(), bt.loop.currentTime())
}

// releaseReplica removes a request from the counts of its balancers.
func (bt *baselineTier) releaseReplica(x *simulatedRequest) {
	if t := x.replica; t != nil {
		n := int64(x.req.PromptTokens)
		t.inflight--
		if x.firstTokenAt > 0 {
			t.runningTokens -= n
		} else {
			t.queuedTokens -= n
		}
		x.replica = nil
	}
}

// handleReplicaLoss handles a request whose replica died: it is tried once more if it has no byte yet.
func (bt *baselineTier) handleReplicaLoss(x *simulatedRequest) {
	p := x.balancer
	had := x.firstTokenAt > 0
	if x.replica != nil {
		x.replica.lastProbe.down = true // until a probe is answered
	}
	bt.releaseReplica(x)
	x.worker, x.sequence = nil, nil
	switch {
	case had:
		bt.recorder.countRequest(x, func(c *RequestCounts) { c.Cut++ })
		bt.requests.endRequest(x, false)
	case x.clientTries > 0:
		bt.requests.refuseRequest(x, openai.CodeUpstream)
	default:
		x.clientTries++
		bt.result.Retried++
		bt.arriveAtBalancer(x, p)
	}
}

// releaseBalancers removes a request from the counts of all balancers, after any end.
func (bt *baselineTier) releaseBalancers(x *simulatedRequest) {
	bt.releaseReplica(x)
	if x.spilledAt != nil {
		x.spilledAt.inflight--
		x.spilledAt = nil
	}
	if x.balancer != nil {
		bt.drainQueue(x.balancer)
	}
}
