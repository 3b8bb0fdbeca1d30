package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/sched"
)

// simulatedRequest is one request from its arrival to its end.
type simulatedRequest struct {
	req             *load.Request
	dueAt           int64
	activeIndex     int // in simulation.active
	measured        bool
	ended           bool
	instance        *localInstance
	handle          *workerHandle // its worker, at that instance
	zoneRequest     *zoneRequest
	attempt         *sched.Attempt
	worker          *simulatedWorker
	sequence        *gpu.Sequence
	placedAt        int64 // when its worker was chosen
	firstTokenAt    int64 // first token, at the worker
	lastTokenAt     int64
	predictedCached int64
	priorTokens     int  // tokens of the answer by lost workers
	restMoved       bool // a gateway has sent the rest of it elsewhere, and no token of that has arrived
	gatewayResumed  bool // a gateway has resumed the stream, which it does once

	// Fields of a request above zones.
	homeRequest, peerRequest *routedRequest // at the gateway that received it, and at the peer that it went to
	homeGateway, peerGateway *gatewayInstance
	accessDelay              int64 // one-way delay between its client and that gateway
	spillCostLimit           float64
	clientTries              int
	deadGateway              *gatewayInstance // it died while the request was in transit from it

	// Fields of a request of a baseline's balancers: the one that has it, the replica that it is sent to, and the
	// peer that it was sent to, at the sending balancer.
	balancer           *baselineBalancer
	replica, spilledAt *balancerTarget
}

// bytesPerToken is the length of a token's text: the router's estimate of lengths when the spec sets none.
const bytesPerToken = 4

// quoteBytes are the bytes around a prompt in its body, which are part of its cost.
const quoteBytes = 2

// admitArrivals starts the requests of the workload that are due, and schedules the next.
func (r *simulation) admitArrivals() error {
	for {
		at, ok, err := r.scenario.Workload.Peek()
		if err != nil {
			return fmt.Errorf("reading the workload: %w", err)
		}
		if !ok || int64(at) >= int64(r.scenario.Duration) {
			return nil
		}
		if int64(at) > r.now {
			r.scheduleArrival(int64(at))
			return nil
		}
		if err := r.startRequest(r.scenario.Workload.Pop()); err != nil {
			return err
		}
	}
}

// scheduleArrival schedules the workload's next arrival, unless it is scheduled already.
func (r *simulation) scheduleArrival(at int64) {
	if r.nextArrivalAt > r.now && r.nextArrivalAt <= at {
		return
	}
	r.nextArrivalAt = at
	r.events.addEvent(event{at: at, kind: evArrivalDue})
}

// startRequest starts a request.
func (r *simulation) startRequest(q *load.Request) error {
	if q == nil {
		return errors.New("the workload announced a request and gave none: its Peek and Pop disagree")
	}
	if q.PromptTokens < 1 || q.Output < 1 {
		return fmt.Errorf("request %d of the workload has %d prompt and %d output tokens: give it at least one of each", q.ID, q.PromptTokens, q.Output)
	}
	x := &simulatedRequest{req: q, dueAt: r.now, measured: r.now >= int64(r.scenario.WarmUp), activeIndex: len(r.active)}
	r.active = append(r.active, x)
	r.countRequest(x, func(c *RequestCounts) { c.Sent++ })
	r.countsForDueSecond(x).Sent++
	r.sentCount++
	if t := r.scenario.MaxInflight; t > 0 && len(r.active) > t {
		r.countRequest(x, func(c *RequestCounts) { c.addRefusal(openai.CodeNoCapacity) })
		r.endRequest(x, false)
		return nil
	}
	switch {
	case r.baseline != noBaseline:
		r.sendToBalancer(x)
	case len(r.gateways) > 0:
		r.sendToGateway(x)
	default:
		r.arriveAtZone(x, r.instances[0])
	}
	return nil
}

// estimatePromptTokens is the estimate of a prompt's length before an engine has counted it: log-uniform around its
// length, and the same for every decider and every policy.
func (r *simulation) estimatePromptTokens(q *load.Request) int {
	e := r.scenario.EstimateError
	if e == 0 {
		return q.PromptTokens
	}
	u := float64(splitMix64(q.ID^splitMix64(r.scenario.Seed^0xe571))>>11) / (1 << 53) // 0 to 1
	return max(1, int(math.Round(float64(q.PromptTokens)*math.Pow(1+e, 2*u-1))))
}

// arriveAtZone passes a request to an instance of a zone.
func (r *simulation) arriveAtZone(x *simulatedRequest, a *localInstance) {
	if r.handleSenderDeath(x) {
		return
	}
	q := x.req
	now := r.timeAt(r.now)
	x.instance = a
	if a.down {
		r.handleZoneUnreachable(x)
		return
	}
	tokens, bytes := int64(r.estimatePromptTokens(q)), int64(q.PromptTokens)*bytesPerToken+quoteBytes
	limit := 0
	if r.scenario.OutputLimit != nil {
		limit = r.scenario.OutputLimit(q)
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
		landmarks = r.promptLandmarks(q)
	}
	v := a.sim.newRequest(x, bytes, r.promptBlocks(q), landmarks, now)
	v.Model, v.Tenant, v.Class, v.EstimatedTokens = r.modelName(q.Model), r.tenantName(q.Tenant), r.requestClass(q), max(tokens, 1)
	v.Query.Key, v.Envelope.MaxTokens, v.RetriesLeft = r.affinityKey(q), limit, 1
	if r.scenario.SendSLO {
		v.SetSLO(r.scenario.SLO.TTFT, r.scenario.SLO.TPOT)
	}
	switch {
	case x.peerRequest != nil:
		v.Class, v.Ticket, v.RetriesLeft = x.peerRequest.query.Class, x.peerGateway.model.ticketOf(x.peerRequest), x.peerRequest.retriesLeft()
	case x.homeRequest != nil:
		v.Class, v.Ticket, v.RetriesLeft = x.homeRequest.query.Class, x.homeGateway.model.ticketOf(x.homeRequest), x.homeRequest.retriesLeft()
	}
	x.zoneRequest = v
	r.requestWorker(x)
}

// requestWorker requests a worker from the zone.
func (r *simulation) requestWorker(x *simulatedRequest) {
	now := r.timeAt(r.now)
	at, refusal, waits := x.instance.sim.Admission.AdmitRequest(&x.zoneRequest.Request, now)
	r.handleSettled(x.instance)
	switch {
	case waits:
		if x.ended || x.worker != nil {
			return // its wait has ended at once
		}
		r.schedulePump(x.instance)
		r.events.addEvent(event{at: max(int64(x.zoneRequest.QueueItem.Deadline.Sub(r.startTime)), r.now), kind: evWaitExpired, request: x})
	default:
		r.applyWaitResult(x, at, refusal)
	}
}

// handleSettled applies a scheduler's decisions on waiting requests.
func (r *simulation) handleSettled(a *localInstance) {
	for {
		todo := a.sim.takeSettled(r.settledBuf)
		if len(todo) == 0 {
			return
		}
		r.settledBuf = nil
		for _, v := range todo {
			r.applyWaitResult(v.Owner.(*zoneRequest).owner, v.WaitResult.Attempt, v.WaitResult.Refusal)
		}
		r.settledBuf = todo
	}
}

func (r *simulation) applyWaitResult(x *simulatedRequest, at *sched.Attempt, refusal *openai.Error) {
	if refusal != nil {
		r.handleZoneRefusal(x, refusal.Code)
		return
	}
	r.dispatchRequest(x, at)
}

// expireWait ends the wait of a request that has timed out.
func (r *simulation) expireWait(x *simulatedRequest) {
	if x.ended || x.worker != nil || x.zoneRequest == nil || x.instance.down || r.timeAt(r.now).Before(x.zoneRequest.QueueItem.Deadline) {
		return
	}
	if refusal := x.instance.sim.expireRequest(x.zoneRequest, r.timeAt(r.now)); refusal != nil {
		r.handleZoneRefusal(x, refusal.Code)
	}
}

// dispatchRequest sends a request to the chosen worker.
func (r *simulation) dispatchRequest(x *simulatedRequest, at *sched.Attempt) {
	choice := at.Choice
	x.handle = x.instance.handles[choice.ID]
	w := x.handle.worker
	x.attempt, x.predictedCached = at, choice.CachedTokens
	if r.scenario.OnDecision != nil {
		gate := ""
		if x.homeRequest != nil {
			gate = x.homeGateway.name
		}
		r.scenario.OnDecision(PlacementDecision{
			At: time.Duration(r.now), RequestID: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, LocalInstance: x.instance.name, Gateway: gate, ClientTry: x.clientTries, PriorTokens: x.priorTokens,
			Reason: choice.Reason, PredictedSeconds: choice.PredictedTTFT, PredictedCached: choice.CachedTokens,
		})
	}
	x.instance.sim.StartAttempt(at, &simulatedExchange{r, x})
	r.submitToEngine(x, w)
}

// submitToEngine passes a request to a worker's engine.
func (r *simulation) submitToEngine(x *simulatedRequest, w *simulatedWorker) {
	now := r.timeAt(r.now)
	x.worker, x.placedAt = w, r.now
	w.requestCount++
	r.result.Decisions++
	if w.deathCauses > 0 {
		r.endLostAttempt(x, endConnectionLost, openai.CodeUpstream)
		return
	}
	seq, err := w.engine.Submit(now, r.engineRequest(x))
	switch {
	case errors.Is(err, gpu.ErrTooLong):
		r.endLostAttempt(x, endTooLong, openai.CodeContextTooLong)
	case err != nil:
		r.endLostAttempt(x, endOverloaded, openai.CodeNoCapacity)
	default:
		x.sequence = seq
		r.scheduleStep(w)
	}
}

// recordToken records a token of a request.
func (r *simulation) recordToken(x *simulatedRequest, s *gpu.Sequence, now time.Time) {
	if s.GeneratedTokens() == 1 {
		x.addDecoding(+1)
		r.recordFirstToken(x, now)
	}
	x.lastTokenAt = r.now
	if s.IsDone() {
		r.events.addEvent(event{at: r.now + int64(gpu.FinishTime), kind: evAnswerFinish, request: x})
	}
}

// addDecoding counts the running answers of a worker for an instance of its zone.
func (x *simulatedRequest) addDecoding(by int) {
	if s := x.handle; s != nil {
		s.decoding = max(s.decoding+by, 0) // its worker may have died since the last token
	}
}

// finishAnswer records a complete answer.
func (r *simulation) finishAnswer(x *simulatedRequest) {
	if x.ended {
		return
	}
	q, s := x.req, x.sequence
	u := openai.TokenUsage{Prompt: q.PromptTokens + x.priorTokens, Completion: q.Output - x.priorTokens, Cached: s.CachedTokens(), Stated: true}
	r.recordService(x)
	x.addDecoding(-1)
	if x.balancer == nil {
		x.instance.sim.finishAttempt(x.attempt, u, endComplete, r.timeAt(r.now), r.timeAt(r.now))
		u.Prompt, u.Completion = q.PromptTokens, q.Output
		r.releaseGateways(x, u, true)
		r.handleSettled(x.instance)
	}
	r.recordCompletion(x)
	r.endRequest(x, true)
}

// endLostAttempt ends a failed attempt, and retries the request elsewhere if it may.
func (r *simulation) endLostAttempt(x *simulatedRequest, how attemptEnd, code string) {
	now := r.timeAt(r.now)
	had := 0
	r.recordService(x)
	if x.sequence != nil {
		had = x.sequence.GeneratedTokens()
	}
	if had > 0 {
		x.addDecoding(-1)
	}
	if x.balancer != nil {
		if how == endTooLong {
			r.refuseRequest(x, code)
		} else {
			r.handleReplicaLoss(x)
		}
		return
	}
	x.instance.sim.finishAttempt(x.attempt, openai.TokenUsage{Completion: had}, how, r.timeAt(x.lastTokenAt), now)
	at := x.attempt
	seat := x.handle
	x.worker, x.sequence, x.attempt = nil, nil, nil
	if how == endConnectionLost {
		r.events.addEvent(event{at: r.now + 1, kind: evScrapeNow, index: seat.index}) // a lost answer causes a scrape at once
	}
	switch {
	case had > 0 && r.resumeInZone(x, at, had):
		r.requestWorker(x)
	case had > 0:
		x.priorTokens += had
		r.endCutStream(x)
	case how == endTooLong:
		r.refuseRequest(x, code)
	case how != endOverloaded && x.instance.sim.takeRetry(x.zoneRequest, at, now):
		r.result.Retried++
		r.requestWorker(x)
	default:
		r.handleZoneRefusal(x, code)
	}
	r.handleSettled(x.instance)
}

// queueGivenUp queues an attempt that the scheduler has given up.
func (r *simulation) queueGivenUp(x *simulatedRequest) { r.givenUp = append(r.givenUp, x) }

func (r *simulation) refuseRequest(x *simulatedRequest, code string) {
	if x.priorTokens > 0 { // the client has received a part of it
		r.endCutStream(x)
		return
	}
	r.releaseGateways(x, openai.TokenUsage{}, false)
	r.countRequest(x, func(c *RequestCounts) { c.addRefusal(code) })
	r.endRequest(x, false)
}

// endRequest removes a request.
func (r *simulation) endRequest(x *simulatedRequest, ok bool) {
	x.ended = true
	if x.balancer != nil {
		r.releaseBalancers(x)
	}
	last := r.active[len(r.active)-1]
	r.active[x.activeIndex], last.activeIndex = last, x.activeIndex
	r.active[len(r.active)-1] = nil
	r.active = r.active[:len(r.active)-1]
	if x.zoneRequest != nil {
		x.instance.sim.recycleRequest(x.zoneRequest)
		x.zoneRequest = nil
	}
	r.scenario.Workload.FinishRequest(x.req, time.Duration(r.now+r.responseDelay(x)), ok)
	if at, ok, err := r.scenario.Workload.Peek(); err != nil {
		r.failure = fmt.Errorf("reading the workload: %w", err)
	} else if ok && int64(at) < int64(r.scenario.Duration) {
		r.scheduleArrival(max(int64(at), r.now))
	}
}

// promptBlocks are a prompt's block hashes as the router computes them.
func (r *simulation) promptBlocks(q *load.Request) []uint64 {
	r.blockBuf = gpu.HashVariableBlocks(r.blockBuf[:0], q.Prompt, func(i int) int {
		if i >= blockhash.MaxBlocks {
			return 0
		}
		return blockhash.BlockSize(i) / bytesPerToken
	})
	return r.blockBuf
}

// affinityKey is the session of a request, by which it is kept together.
func (r *simulation) affinityKey(q *load.Request) uint64 {
	if r.scenario.affinityKey != nil {
		return r.scenario.affinityKey(q)
	}
	return q.Session | 1<<63
}

func (r *simulation) requestClass(q *load.Request) spec.Class {
	if r.scenario.ClassOf != nil && !r.scenario.HideTenants {
		return r.scenario.ClassOf(q)
	}
	return spec.Interactive
}

func (r *simulation) tenantName(n int32) string {
	if n >= 0 && int(n) < len(r.scenario.Tenants) && !r.scenario.HideTenants {
		return r.scenario.Tenants[n]
	}
	return spec.DefaultTenant
}

func (r *simulation) modelName(n int32) string {
	if n >= 0 && int(n) < len(r.scenario.Models) {
		return r.scenario.Models[n]
	}
	return r.defaultModel
}
