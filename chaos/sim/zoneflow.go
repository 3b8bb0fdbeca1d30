package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// quoteBytes are the bytes around a prompt in its body, which are part of its cost.
const quoteBytes = 2

// arriveAtZone passes a request to an instance of a zone.
func (zt *zoneTier) arriveAtZone(x *simulatedRequest, a *localInstance) {
	if zt.regional.handleSenderDeath(x) {
		return
	}
	q := x.req
	now := zt.loop.currentTime()
	x.instance = a
	if a.down {
		zt.regional.handleZoneUnreachable(x)
		return
	}
	tokens, bytes := int64(zt.reader.estimatePromptTokens(q)), int64(q.PromptTokens)*bytesPerToken+quoteBytes
	limit := 0
	if zt.scenario.OutputLimit != nil {
		limit = zt.scenario.OutputLimit(q)
	}
	if x.priorTokens > 0 {
		whole := *q
		whole.Prompt = x.promptWithAnswer(x.priorTokens)
		q = &whole
		tokens, bytes = tokens+int64(x.priorTokens), bytes+int64(x.priorTokens)*bytesPerToken
		if limit > 0 {
			limit = max(limit-x.priorTokens, 1)
		}
	}
	var landmarks []uint64
	if x.homeRequest != nil || x.peerRequest != nil {
		landmarks = zt.reader.promptLandmarks(q)
	}
	v := a.sim.newRequest(x, bytes, zt.reader.promptBlocks(q), landmarks, now)
	v.Model, v.Tenant, v.Class, v.EstimatedTokens = zt.reader.modelName(q.Model), zt.reader.tenantName(q.Tenant), zt.reader.requestClass(q), max(tokens, 1)
	v.Query.Key, v.Envelope.MaxTokens, v.RetriesLeft = zt.reader.affinityKey(q), limit, 1
	if zt.scenario.SendSLO {
		v.SetSLO(zt.scenario.SLO.TTFT, zt.scenario.SLO.TPOT)
	}
	switch {
	case x.peerRequest != nil:
		v.Class, v.Ticket, v.RetriesLeft = x.peerRequest.query.Class, x.peerGateway.model.ticketOf(x.peerRequest), x.peerRequest.retriesLeft()
	case x.homeRequest != nil:
		v.Class, v.Ticket, v.RetriesLeft = x.homeRequest.query.Class, x.homeGateway.model.ticketOf(x.homeRequest), x.homeRequest.retriesLeft()
	}
	x.zoneRequest = v
	zt.requestWorker(x)
}

// requestWorker requests a worker from the zone.
func (zt *zoneTier) requestWorker(x *simulatedRequest) {
	now := zt.loop.currentTime()
	at, refusal, waits := x.instance.sim.Admission.AdmitRequest(&x.zoneRequest.Request, now)
	zt.handleSettled(x.instance)
	switch {
	case waits:
		if x.ended || x.worker != nil {
			return // its wait has ended at once
		}
		zt.schedulePump(x.instance)
		zt.loop.addEvent(event{at: max(int64(x.zoneRequest.QueueItem.Deadline.Sub(zt.loop.startTime)), zt.loop.now), kind: evWaitExpired, request: x})
	default:
		zt.applyWaitResult(x, at, refusal)
	}
}

// handleSettled applies a scheduler's decisions on waiting requests.
func (zt *zoneTier) handleSettled(a *localInstance) {
	for {
		todo := a.sim.takeSettled(zt.settledBuf)
		if len(todo) == 0 {
			return
		}
		zt.settledBuf = nil
		for _, v := range todo {
			zt.applyWaitResult(v.Owner.(*zoneRequest).owner, v.WaitResult.Attempt, v.WaitResult.Refusal)
		}
		zt.settledBuf = todo
	}
}

func (zt *zoneTier) applyWaitResult(x *simulatedRequest, at *sched.Attempt, refusal *openai.Error) {
	if refusal != nil {
		zt.regional.handleZoneRefusal(x, refusal.Code)
		return
	}
	zt.dispatchRequest(x, at)
}

// expireWait ends the wait of a request that has timed out.
func (zt *zoneTier) expireWait(x *simulatedRequest) {
	if x.ended || x.worker != nil || x.zoneRequest == nil || x.instance.down || zt.loop.currentTime().Before(x.zoneRequest.QueueItem.Deadline) {
		return
	}
	if refusal := x.instance.sim.expireRequest(x.zoneRequest, zt.loop.currentTime()); refusal != nil {
		zt.regional.handleZoneRefusal(x, refusal.Code)
	}
}

// dispatchRequest sends a request to the chosen worker.
func (zt *zoneTier) dispatchRequest(x *simulatedRequest, at *sched.Attempt) {
	choice := at.Choice
	x.handle = x.instance.handles[choice.ID]
	w := x.handle.worker
	x.attempt, x.predictedCached = at, choice.CachedTokens
	if zt.scenario.OnDecision != nil {
		gate := ""
		if x.homeRequest != nil {
			gate = x.homeGateway.name
		}
		zt.scenario.OnDecision(PlacementDecision{
			At: time.Duration(zt.loop.now), RequestID: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, LocalInstance: x.instance.name, Gateway: gate, ClientTry: x.clientTries, PriorTokens: x.priorTokens,
			Reason: choice.Reason, PredictedSeconds: choice.PredictedTTFT, PredictedCached: choice.CachedTokens,
		})
	}
	x.instance.sim.StartAttempt(at, &simulatedExchange{zt.engines, x})
	zt.engines.submitToEngine(x, w)
}

// resumeInZone lets the zone resume an answer whose worker was lost after had tokens; false when it may not.
func (zt *zoneTier) resumeInZone(x *simulatedRequest, at *sched.Attempt, had int) bool {
	if x.zoneRequest == nil || x.instance.down {
		return false
	}
	whole := *x.req
	whole.Prompt = x.promptWithAnswer(x.priorTokens + had)
	if !x.instance.sim.resumeRequest(x.zoneRequest, at, had, zt.reader.promptBlocks(&whole), zt.loop.currentTime()) {
		return false
	}
	x.priorTokens += had
	zt.result.Resumed++
	return true
}

// cancelInZone releases a request's resources in a zone, as after its client has left.
func (zt *zoneTier) cancelInZone(x *simulatedRequest) {
	now := zt.loop.currentTime()
	a := x.instance
	if x.worker == nil {
		a.sim.Admission.LeaveQueue(&x.zoneRequest.Request, now)
	} else {
		made := 0
		if x.sequence != nil {
			made = x.sequence.GeneratedTokens()
			x.worker.engine.SettleTo(now)
			x.worker.engine.Cancel(x.sequence)
			zt.engines.scheduleStep(x.worker)
			if made > 0 {
				x.addDecoding(-1)
			}
		}
		a.sim.finishAttempt(x.attempt, openai.TokenUsage{Completion: made}, endClientGone, now, now)
	}
	a.sim.recycleRequest(x.zoneRequest)
	zt.handleSettled(a)
}

func (zt *zoneTier) serveWaiting(a *localInstance) {
	a.pumpScheduled = false
	if a.down {
		return
	}
	waiting := a.sim.Admission.ServeAllQueues(zt.loop.currentTime())
	zt.handleSettled(a)
	if waiting {
		zt.schedulePump(a)
	}
}

// schedulePump schedules the next pump of an instance with waiting requests.
func (zt *zoneTier) schedulePump(a *localInstance) {
	if !a.pumpScheduled {
		a.pumpScheduled = true
		zt.loop.addEvent(event{at: zt.loop.now + int64(sched.PumpInterval), kind: evServeWaiting, index: a.index})
	}
}
