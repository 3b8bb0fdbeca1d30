package sched

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
)

// Admission places requests on workers, queues them or refuses them.
type Admission struct {
	*zoneState
	prefixSecret uint64                        // seeds prefix hashes, so that clients cannot construct collisions
	acks         map[string]capacity.LedgerAck // the highest ticket of each parent

	loader      *ModelLoader
	autoscaling *Autoscaling
	learner     *learner
	retries     *RetryLimiter

	// settled are the requests whose wait has ended since TakeSettled.
	settled []*Request
}

// HedgeRefusal is why no second attempt was made.
type HedgeRefusal uint8

// TakeSettled returns the requests whose wait has ended since the last call; each has its WaitResult. The slice is valid
// until the next call of any method.
func (a *Admission) TakeSettled() []*Request {
	out := a.settled
	a.settled = a.settled[:0]
	return out
}

// endWait ends the wait of a request.
func (a *Admission) endWait(v *Request, r WaitResult, now time.Time) {
	if r.Refusal != nil {
		a.logRefusal(v, r.Refusal.Code, now)
	}
	v.WaitResult = r
	a.settled = append(a.settled, v)
}

// maxAcks bounds the parents whose tickets are kept.
const maxAcks = capacity.MaxAcks

// AdmitRequest tries to place a request and queues it otherwise.
func (a *Admission) AdmitRequest(v *Request, now time.Time) (at *Attempt, refusal *openai.Error, waits bool) {
	if at, refusal, waits = a.placeOrQueue(v, now); refusal != nil {
		a.logRefusal(v, refusal.Code, now)
	}
	return at, refusal, waits
}

func (a *Admission) placeOrQueue(v *Request, now time.Time) (at *Attempt, refusal *openai.Error, waits bool) {
	p := a.groups[v.Model]
	if p == nil || len(p.workers) == 0 {
		a.autoscaling.countDemand(v, now)
		return nil, openai.ModelNotFound(v.Model, a.ServedModels()), false
	}
	a.RecordAck(v.Ticket)
	a.prepareQuery(v, p)
	a.autoscaling.countDemand(v, now)
	if a.IsClosed(now) {
		return nil, openai.NoCapacity(v.Model, openai.MinRetryAfter), false
	}
	if p.queue.Len() == 0 {
		if at = a.placeRequest(v, p, false, now); at != nil {
			a.fillQueueItem(v, p, now)
			v.QueueItem.Cost = at.expectedGPUSeconds()
			p.queue.RecordDirectEntry(&v.QueueItem, now)
			return at, nil, false
		}
	}
	switch reason := a.reasonNotPlaced(v, p, now); reason {
	case pick.ReasonTooLong:
		return nil, openai.ContextTooLong(int(v.Query.ContextTokens()), a.longestContext(v, p)), false
	case pick.ReasonNoWorker:
		if refusal = a.loader.awaitModelLoad(v, now); refusal != nil {
			return nil, refusal, false
		}
	case pick.ReasonNoPool:
		return nil, a.refuseNoPool(v), false
	}
	return a.enqueueRequest(v, p, now)
}

// prepareQuery fills in the parts of the query that depend on the scheduler's state.
func (a *Admission) prepareQuery(v *Request, p *modelGroup) {
	q := &v.Query
	counted := min(max(p.countRatio.meanOr(1), 0.25), 4)
	if v.EstimateIsExact {
		counted = 1
	}
	images := min(int64(v.Envelope.ImageTokens), v.EstimatedTokens) // the counted ratio applies to text only
	q.PromptTokens = max(1, int64(float64(v.EstimatedTokens-images)*counted)+images)
	if v.LongestInputTokens > 0 {
		q.LongestPrompt = max(1, int64(float64(v.LongestInputTokens)*counted))
	}
	q.OutputTokens = a.learner.predictOutputTokens(v)
	q.PromptBytes = int64(len(v.Envelope.Prompt))
	q.Class = v.Class
	a.assignPools(v)
	a.limitDestinations(v, p)
	q.MaxWait = a.policy.TTFTTarget(v.Model, v.Class) / 2
	q.Share.Contended = false
	if q.Blocks == nil {
		q.Blocks = blockhash.AppendBlockHashes(v.blockBuffer[:0], blockhash.DeriveSeed(a.prefixSecret, a.policy.prefixOwner(v.Tenant), v.Model), v.Envelope.Prompt)
		q.Key = a.policy.computeHashKey(v)
		a.setLandmarks(v)
	}
}

// placeRequest assigns a worker with room to a request; nil when none has room. crowded is set while others wait in the
// queue with it.
func (a *Admission) placeRequest(v *Request, p *modelGroup, crowded bool, now time.Time) *Attempt {
	a.setShareLimits(v, p, crowded, now)
	a.limitDestinations(v, p)
	v.Query.SLO.WaitForTPOT, v.Query.Waited = a.mayWaitForTPOT(v, now), v.QueueItem.WaitTime(now)
	choice, ok := pick.ChooseWorker(&v.Query, p.view, now, a.rng, nil)
	if !ok {
		return nil
	}
	a.logChoice(v, p, choice, false, now)
	a.prefixIndex.InsertPrompt(choice.ID, v.Query.Blocks)
	p.notePrompt(v, now)
	a.autoscaling.recordPlacement(v, choice.CachedTokens, now)
	return a.recordDispatch(v, p, choice, now)
}

// recordDispatch creates an attempt and enters it in the in-flight ledger.
func (a *Admission) recordDispatch(v *Request, p *modelGroup, choice pick.Choice, now time.Time) *Attempt {
	w := p.workers[choice.Index]
	rates := w.learner.Rates()
	own := rates.PrefillWork(v.Query.PromptTokens, choice.CachedTokens)
	load := a.ledger.ReadLoad(w.ledgerID, rates.PrefillRate, now)
	begin := v.Query.PromptPrefix()
	begin.MostlyCached = 2*choice.CachedTokens > v.Query.PromptTokens
	at := &Attempt{
		Request: v, Worker: w, group: p, Choice: choice, SentAt: now, exactIndex: w.indexMode(), prefillPace: 1 / rates.PrefillRate,
		workTokens: float64(load.Backlog + load.ForeignBacklog + own), sequencesAtSend: float64(load.Running + load.ForeignSeqs + 1),
		kvTokensAtSend: float64(load.KV + load.ForeignKV + v.Query.PromptTokens),
		ledgerEntry:    a.ledger.DispatchPrompt(w.ledgerID, own, v.Query.KVTokens(), w.reading.KVTotal, begin, now),
	}
	at.predictedFirstByte = a.learner.predictFirstByte(at)
	w.breaker.BeginRequest(now)
	w.openAttempts++
	w.lastUseAt = now
	w.beginModelUse(v.Model, now)
	w.attempts[at] = struct{}{}
	p.promptTokens.addSample(float64(v.Query.PromptTokens))
	p.prefillPace.addSample(at.prefillPace)
	return at
}

// reasonNotPlaced returns why no worker was chosen; pick.ReasonBusy means that waiting helps.
func (a *Admission) reasonNotPlaced(v *Request, p *modelGroup, now time.Time) string {
	d, ok := pick.PeekWorker(&v.Query, p.view, now, a.rng, nil)
	if ok {
		return pick.ReasonBusy
	}
	return d.Reason
}

func (a *Admission) longestContext(v *Request, p *modelGroup) int {
	var n int64
	for i := range p.view.Workers {
		w := &p.view.Workers[i]
		if !v.Query.AllowsWorker(w) {
			continue
		}
		n = max(n, contextLimit(w))
	}
	return int(n)
}

// contextLimit returns how many tokens of prompt and answer one request may have on a worker; 0 when unknown. A
// sequence is limited to its context even where the whole cache would hold more: llama.cpp divides the cache among
// its slots.
func contextLimit(w *pick.WorkerSnapshot) int64 {
	if w.MaxContext > 0 && w.KVTotal > 0 {
		return min(w.MaxContext, w.KVTotal)
	}
	return max(w.MaxContext, w.KVTotal)
}

// LeaveQueue removes a waiting request from the queue. It returns false when its wait has ended already: a worker may be
// assigned at the moment at which the client leaves.
func (a *Admission) LeaveQueue(v *Request, now time.Time) bool {
	if !v.QueueItem.IsWaiting() {
		return false
	}
	a.groups[v.Model].queue.RemoveItem(&v.QueueItem, now)
	a.autoscaling.recordAbandonedWait(v, now)
	return true
}

// RefuseTooLate returns the refusal of a request that has waited until its deadline.
func (a *Admission) RefuseTooLate(v *Request, now time.Time) *openai.Error {
	if e := a.loader.refuseNotLoaded(v, now); e != nil {
		return e
	}
	if v.isPastDeadline(now) {
		return openai.DeadlineUnmeetable("local")
	}
	return a.refuseNoRoom(v, a.groups[v.Model], now)
}

// RecordAck keeps the highest ticket of each parent, so that the summary acknowledges it.
func (a *Admission) RecordAck(t capacity.LedgerAck) {
	if t.Parent == "" {
		return
	}
	old, ok := a.acks[t.Parent]
	if !ok && len(a.acks) >= maxAcks || ok && (old.Boot > t.Boot || old.Boot == t.Boot && old.Ticket >= t.Ticket) {
		return
	}
	a.acks[t.Parent] = t
}

// HedgeDelay returns how long the first byte of an attempt may take before a second attempt starts; false when the
// request is not hedged.
func (a *Admission) HedgeDelay(v *Request, at *Attempt) (time.Duration, bool) {
	h := &a.policy.Spec.Routing.Hedge
	if !h.Enabled || v.RetriesLeft == 0 || v.SuspectAttempt || len(at.group.workers) < 2 {
		return 0, false
	}
	return perfmodel.HedgeDelay(at.predictedFirstByte, at.group.predictionErrorFor(v), h.Quantile, time.Duration(h.After)), true
}

// PlaceHedge dispatches the second attempt of a request besides first: within the retry budget, on a worker that has room
// now, and only while no request waits. Otherwise it returns why not, or NotHedged when the first attempt has ended.
func (a *Admission) PlaceHedge(v *Request, first *Attempt, now time.Time) (at *Attempt, why HedgeRefusal) {
	p := first.group
	switch {
	case first.ended:
		return nil, NotHedged
	case a.retries.Budget < 1:
		return nil, NoHedgeBudget
	case p.queue.Len() > 0 || a.IsClosed(now):
		return nil, NoHedgeRoom
	}
	q := v.Query
	q.Exclude = append(slices.Clone(q.Exclude), first.Choice.ID)
	choice, ok := pick.ChooseWorker(&q, p.view, now, a.rng, nil)
	if !ok {
		return nil, NoHedgeRoom
	}
	a.retries.Budget--
	a.logChoice(v, p, choice, true, now)
	at = a.recordDispatch(v, p, choice, now)
	at.IsHedge = true
	return at, NotHedged
}

const (
	NotHedged     HedgeRefusal = iota // none was needed
	NoHedgeBudget                     // the retry budget was empty
	NoHedgeRoom                       // no other worker had room
)

// peekChoice returns the worker that a request would get from a model if any backlog were accepted.
func (a *Admission) peekChoice(v *Request, p *modelGroup, now time.Time) (pick.Choice, bool) {
	probe := *v
	probe.Model, probe.Query = p.model, pick.PlacementQuery{}
	a.prepareQuery(&probe, p)
	probe.Query.MaxWait = 0
	return pick.PeekWorker(&probe.Query, p.view, now, a.rng, nil)
}

// PredictCachedTokens predicts how much of a request's prompt its worker would have cached, in tokens; false when no worker
// has room.
func (a *Admission) PredictCachedTokens(v *Request, now time.Time) (int64, bool) {
	p := a.groups[v.Model]
	if p == nil {
		return 0, false
	}
	choice, ok := a.peekChoice(v, p, now)
	return choice.CachedTokens, ok
}

// PredictTTFT predicts a request's time to first token from a model, in seconds; infinity when it cannot be predicted.
func (a *Admission) PredictTTFT(v *Request, model string, now time.Time) float64 {
	p := a.groups[model]
	if p == nil || len(p.workers) == 0 {
		return math.Inf(1)
	}
	d, ok := a.peekChoice(v, p, now)
	wait, drains := p.queue.PredictWait(v.Class, now)
	switch {
	case ok && p.queue.Len() == 0:
		return d.PredictedTTFT
	case ok && drains:
		return d.PredictedTTFT + wait.Seconds()
	case drains && d.Reason == pick.ReasonBusy:
		return wait.Seconds()
	}
	return math.Inf(1)
}

// setLandmarks hashes the beginnings of a request's prompt, with the same names that gateways use.
func (a *Admission) setLandmarks(v *Request) {
	if a.policy.prefixSeed != 0 {
		v.Landmarks = capacity.AppendLandmarks(v.landmarkBuffer[:0], a.policy.prefixSeed, a.policy.prefixOwner(v.Tenant), v.Model, v.Envelope.Prompt)
	}
}
