package sched

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

type queueItem = queue.Item[*Request]

// enforceZoneDrain ends what still runs and waits in a zone after its drain deadline. Requests without a first byte
// are handed back to the gateway as not started; a started stream ends with an error event. Before the deadline a
// drained zone serves what it receives: gateways send it only requests that have no other zone.
func (a *Admission) enforceZoneDrain(now time.Time) {
	a.zoneDrain.SetDraining(a.policy.isZoneDrained(a.cfg.Region, a.cfg.Zone, now), now)
	if !a.IsClosed(now) {
		return
	}
	for _, p := range a.groupsByModel() {
		a.refuseWaiting(p, openai.NoCapacity(p.model, openai.MinRetryAfter), now)
	}
	for _, w := range a.WorkersByName() {
		w.cancelAttempts(ZoneDrainOverdue)
	}
	for w := range a.leavingWorkers {
		w.cancelAttempts(ZoneDrainOverdue)
	}
}

// setShareLimits sets the limits for a request's placement by its tenant's fair share. crowded is set while others wait in
// the queue with it. While no request waits, a tenant over its share only finds workers full earlier: if the zone has room
// for all, no tenant has to wait.
func (a *Admission) setShareLimits(v *Request, p *modelGroup, crowded bool, now time.Time) {
	share := p.queue.JudgeShare(v.fairnessKey(), v.Class, now)
	v.Query.Share = pick.ShareLimits{
		Contended:       crowded && share.Running != queue.ShareUnder || share.YieldsToUrgent || share.OverShare,
		ReserveHeadroom: share.Running == queue.ShareOver || share.YieldsToUrgent,
		OverShare:       share.OverShare && p.queue.Len() > 0,
	}
}

// assignPools sets the pool of dedicated workers that a request belongs to, by the spec in force.
func (a *Admission) assignPools(v *Request) {
	p, bit := modelroute.FindPool(a.policy.Spec, v.Tenant, v.Model, v.Class)
	v.Query.Pools, v.Query.Overflow = bit, p != nil && p.Overflow
}

// refuseNoPool refuses a request for which no worker is declared here. It is retryable: another endpoint may have one.
func (a *Admission) refuseNoPool(v *Request) *openai.Error {
	e := openai.NoCapacity(v.Model, openai.MinRetryAfter)
	if v.Query.Only != nil {
		e.Message = fmt.Sprintf("no endpoint that the proxy may use serves %s here", v.Model)
	} else if p, _ := modelroute.FindPool(a.policy.Spec, v.Tenant, v.Model, v.Class); p != nil {
		e.Message = fmt.Sprintf("no worker of the pool %q serves %s here", p.Name, v.Model)
	} else {
		e.Message = fmt.Sprintf("every worker that serves %s here is dedicated to a pool", v.Model)
	}
	return e
}

// refuseNoEligible refuses a waiting request once all workers that may take it are gone or down, though others serve the
// model. It returns nil while the request may still be placed, for example while its model is being loaded.
func (a *Admission) refuseNoEligible(v *Request, p *modelGroup) *openai.Error {
	if len(a.policy.Spec.Pools) == 0 && v.Query.Only == nil || v.loadWait > 0 {
		return nil
	}
	a.assignPools(v) // the spec may have changed while the request waited
	there := false
	for i := range p.view.Workers {
		if w := &p.view.Workers[i]; v.Query.AllowsWorker(w) {
			if w.DownReason == "" {
				return nil
			}
			there = true
		}
	}
	if there {
		return openai.NoCapacity(v.Model, openai.MinRetryAfter)
	}
	return a.refuseNoPool(v)
}

// serveQueue sends the waiting requests of one model group to the workers that have room.
func (a *Admission) serveQueue(p *modelGroup, now time.Time) {
	for p.queue.Len() > 0 {
		var at *Attempt
		var refusal *openai.Error
		it := p.queue.PlaceNext(now, func(it *queueItem) (answer queue.TryResult) {
			if at, answer = a.tryPlace(it.Value, p, now); at != nil {
				it.Cost = at.expectedGPUSeconds()
			} else if refusal = a.refuseNoEligible(it.Value, p); refusal != nil {
				return queue.Placed
			}
			return answer
		})
		if it == nil {
			return
		}
		if at == nil {
			p.queue.SettleItem(it, 0)
		}
		a.endWait(it.Value, WaitResult{Attempt: at, Refusal: refusal}, now)
	}
}

// ServeAllQueues sends waiting requests to the workers that have room, and reports whether any still wait. Requests for a
// model that no worker serves or will load are refused.
func (a *Admission) ServeAllQueues(now time.Time) (waiting bool) {
	for _, p := range a.groupsByModel() {
		a.serveQueue(p, now)
		if p.queue.Len() > 0 && a.hasNoReadyWorker(p) {
			if loads, refusal := a.loader.isLoadExpected(p, now); !loads {
				a.refuseWaiting(p, refusal, now)
			}
		}
		waiting = waiting || p.queue.Len() > 0
	}
	return waiting
}

// refuseWaiting refuses all requests of a queue whose workers are all down, so that the tier above can try elsewhere at once.
func (a *Admission) refuseWaiting(p *modelGroup, refusal *openai.Error, now time.Time) {
	for p.queue.Len() > 0 {
		it := p.queue.PlaceNext(now, func(*queueItem) queue.TryResult { return queue.Placed })
		p.queue.SettleItem(it, 0)
		a.endWait(it.Value, WaitResult{Refusal: refusal}, now)
	}
}

// TerminateAll cancels all attempts and refuses all waiting requests.
func (a *Admission) TerminateAll(now time.Time) {
	a.terminating = true
	for _, p := range a.groups {
		a.refuseWaiting(p, openai.NoCapacity(p.model, openai.MinRetryAfter), now)
	}
	for _, w := range a.workers {
		w.cancelAttempts(InstanceStopping)
	}
	for w := range a.leavingWorkers {
		w.cancelAttempts(InstanceStopping)
	}
}

// outputTokenCost is the cost of an output token relative to a prompt token.
const outputTokenCost = 2

// fillQueueItem fills in the request's queue item.
func (a *Admission) fillQueueItem(v *Request, p *modelGroup, now time.Time) {
	it := &v.QueueItem
	it.Tenant, it.Class, it.Value, it.Weight = v.fairnessKey(), v.Class, v, a.policy.tenantWeight(v.Tenant)
	it.Work, it.Bytes = max(1, v.Query.PromptTokens), int64(len(v.Body))
	it.Cost = estimateGPUSeconds(v.Query.PromptTokens, v.ExpectedOutputTokens(), p.prefillPace.meanOr(defaultPrefillPace))
	it.Deadline = now.Add(a.MaxQueueWait(v))
	if !v.Deadline.IsZero() && v.Deadline.Before(it.Deadline) {
		it.Deadline = v.Deadline
	}
	it.DueAt, it.LeadTime = a.firstTokenDeadline(v)
	it.ShedWhenLate = v.isSheddable()
	if last := it.DueAt.Add(-it.LeadTime); it.ShedWhenLate && last.Before(it.Deadline) {
		it.Deadline = last
	}
}

// firstTokenDeadline is when a request's first token is due, and how long before that it must be placed.
func (a *Admission) firstTokenDeadline(v *Request) (due time.Time, lead time.Duration) {
	due = v.FirstTokenDue
	if due.IsZero() {
		due = v.ArrivedAt.Add(a.policy.TTFTTarget(v.Model, v.Class))
	}
	if !v.Deadline.IsZero() && v.Deadline.Before(due) {
		due = v.Deadline
	}
	return due, max(0, due.Sub(v.ArrivedAt)) / 8
}

// mayWaitForTPOT reports whether a request with a TPOT target may wait for a batch in which the target holds. It may while it can
// still begin in time, and without limit where it is sheddable.
func (a *Admission) mayWaitForTPOT(v *Request, now time.Time) bool {
	if v.Query.SLO.TPOT <= 0 {
		return false
	}
	due, lead := a.firstTokenDeadline(v)
	return v.isSheddable() || now.Before(due.Add(-lead))
}

// defaultPrefillPace is the time of one prompt token before any request was placed, in seconds.
const defaultPrefillPace = 1.0 / 20000

// estimateGPUSeconds is the GPU time of a request in seconds: (uncached + outputTokenCost * output) * pace. uncached and output
// are tokens; pace is the time of one prompt token in seconds.
func estimateGPUSeconds(uncached, output int64, pace float64) float64 {
	return float64(uncached+outputTokenCost*output) * pace
}

// enqueueRequest puts a request in the queue. When the queue is full, it refuses this request or evicts another.
func (a *Admission) enqueueRequest(v *Request, p *modelGroup, now time.Time) (*Attempt, *openai.Error, bool) {
	a.fillQueueItem(v, p, now)
	r := p.queue.Push(&v.QueueItem, now, a.rng, func(it *queueItem) {
		a.endWait(it.Value, WaitResult{Refusal: a.refuseNoRoom(it.Value, p, now)}, now)
	})
	switch {
	case r == queue.DeadlineUnmeetable && !v.Deadline.IsZero():
		return nil, openai.DeadlineUnmeetable("local"), false
	case r != queue.Accepted:
		return nil, a.refuseNoRoom(v, p, now), false
	}
	a.serveQueue(p, now)
	if p.queue.Len() == 1 {
		a.invalidatePlacement() // the first waiting request may need a model that is not loaded
	}
	return nil, nil, true
}

// refuseNoRoom refuses a request. Its Retry-After is the time in which the queue works off half of what waits before it.
func (a *Admission) refuseNoRoom(v *Request, p *modelGroup, now time.Time) *openai.Error {
	return openai.NoCapacity(v.Model, p.queue.RetryAfter(v.fairnessKey(), v.Class, now))
}

// tryPlace places a waiting request if a worker has room.
func (a *Admission) tryPlace(v *Request, p *modelGroup, now time.Time) (*Attempt, queue.TryResult) {
	if p.mustYield(v) {
		return nil, queue.HeldForLongShare
	}
	at := a.placeRequest(v, p, p.queue.Len() > 1, now)
	switch {
	case at != nil:
		p.recordTurn(v)
		return at, queue.Placed
	case v.Query.Share.OverShare:
		return nil, queue.OverFairShare
	case v.Query.Share.ReserveHeadroom && p.queue.OthersWaiting(v.fairnessKey(), v.Class):
		return nil, queue.HeldForLongShare // it has its share, so other requests are not held for it
	case pick.IsHeldBack(p.view):
		p.takeTurn(v)
		return nil, queue.HeldForLongShare
	}
	return nil, queue.NoRoom
}
