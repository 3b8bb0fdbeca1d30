package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// arriveAtReplica passes a request to its replica's engine.
func (r *simulation) arriveAtReplica(x *simulatedRequest) {
	w := x.replica.worker
	if w.zone.down {
		r.handleReplicaLoss(x)
		return
	}
	if r.scenario.OnDecision != nil {
		r.scenario.OnDecision(PlacementDecision{
			At: time.Duration(r.now), RequestID: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Reason: baselineNames[r.baseline],
		})
	}
	r.submitToEngine(x, w)
}

// recordReplicaFirstToken records the first token of a request that a baseline placed.
func (r *simulation) recordReplicaFirstToken(x *simulatedRequest) {
	t, n := x.replica, int64(x.req.PromptTokens)
	t.queuedTokens, t.runningTokens = t.queuedTokens-n, t.runningTokens+n
	t.latency.ObserveFirstToken(t.inflight, time.Duration(r.now-x.placedAt).Seconds(), r.timeAt(r.now))
}

// releaseReplica removes a request from the counts of its balancers.
func (r *simulation) releaseReplica(x *simulatedRequest) {
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
func (r *simulation) handleReplicaLoss(x *simulatedRequest) {
	p := x.balancer
	had := x.firstTokenAt > 0
	if x.replica != nil {
		x.replica.lastProbe.down = true // until a probe is answered
	}
	r.releaseReplica(x)
	x.worker, x.sequence = nil, nil
	switch {
	case had:
		r.countRequest(x, func(c *RequestCounts) { c.Cut++ })
		r.endRequest(x, false)
	case x.clientTries > 0:
		r.refuseRequest(x, openai.CodeUpstream)
	default:
		x.clientTries++
		r.result.Retried++
		r.arriveAtBalancer(x, p)
	}
}

// releaseBalancers removes a request from the counts of all balancers, after any end.
func (r *simulation) releaseBalancers(x *simulatedRequest) {
	r.releaseReplica(x)
	if x.spilledAt != nil {
		x.spilledAt.inflight--
		x.spilledAt = nil
	}
	if x.balancer != nil {
		r.drainQueue(x.balancer)
	}
}
