package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// simulatedExchange is an attempt at a simulated worker.
type simulatedExchange struct {
	engines *workerTier
	request *simulatedRequest
}

// CancelAttempt ends the attempt before the next event.
func (e *simulatedExchange) CancelAttempt(sched.CancelReason) { e.engines.queueGivenUp(e.request) }

// IsBlockedByClient is false: simulated clients read at once.
func (*simulatedExchange) IsBlockedByClient() bool { return false }

// attemptEnd is how an attempt ended.
type attemptEnd uint8

const (
	endComplete       attemptEnd = iota // the answer passed whole
	endConnectionLost                   // the connection broke, or could not be made
	endGivenUp                          // the scheduler cancelled it
	endClientGone                       // the client left
	endOverloaded                       // the worker refused it because its own queue is full
	endTooLong                          // the worker refused it as longer than its context
)

// submitToEngine passes a request to a worker's engine.
func (wt *workerTier) submitToEngine(x *simulatedRequest, w *simulatedWorker) {
	now := wt.loop.currentTime()
	x.worker, x.placedAt = w, wt.loop.now
	w.requestCount++
	wt.result.Decisions++
	wt.observer.recordAttempt(x)
	if w.refusesConnections() {
		wt.endLostAttempt(x, endConnectionLost, openai.CodeUpstream)
		return
	}
	seq, err := w.engine.Submit(now, x.engineRequest())
	switch {
	case errors.Is(err, gpu.ErrTooLong):
		wt.endLostAttempt(x, endTooLong, openai.CodeContextTooLong)
	case err != nil:
		wt.endLostAttempt(x, endOverloaded, openai.CodeNoCapacity)
	default:
		x.sequence = seq
		wt.scheduleStep(w)
	}
}

// recordToken records a token of a request.
func (wt *workerTier) recordToken(x *simulatedRequest, s *gpu.Sequence, now time.Time) {
	if s.GeneratedTokens() == 1 {
		x.addDecoding(+1)
		wt.recordFirstToken(x, now)
	}
	x.lastTokenAt = wt.loop.now
	switch {
	case s.IsDone():
		wt.loop.addEvent(event{at: wt.loop.now + int64(gpu.FinishTime), kind: evAnswerFinish, request: x})
	case s.GeneratedTokens() == 1 && x.worker.cutsStream(x):
		wt.cutStream(x, s)
	}
}

// cutCheckInterval is how often a stream that its worker breaks is examined: an engine reports its first and its last token only.
const cutCheckInterval = int64(5 * time.Millisecond)

// cutStream breaks a stream once it has the tokens after which its worker cuts it.
func (wt *workerTier) cutStream(x *simulatedRequest, s *gpu.Sequence) {
	if x.ended || x.sequence != s || x.worker.cuts == nil {
		return
	}
	x.worker.engine.SettleTo(wt.loop.currentTime())
	switch {
	case s.IsDone():
	case s.GeneratedTokens() >= x.worker.cuts.AfterTokens:
		x.cutByWorker = true
		wt.queueGivenUp(x)
	default:
		wt.loop.addEvent(event{at: wt.loop.now + cutCheckInterval, kind: evCutDue, request: x, payload: s})
	}
}

// recordFirstToken records the first token of an attempt.
func (wt *workerTier) recordFirstToken(x *simulatedRequest, now time.Time) {
	if x.priorTokens == 0 {
		x.firstTokenAt = wt.loop.now
	}
	wt.observer.recordFirstToken(x)
	if x.balancer != nil {
		wt.baselines.recordReplicaFirstToken(x)
		return
	}
	x.instance.sim.RecordFirstByte(x.attempt, true, now)
	if x.priorTokens == 0 || x.restMoved {
		x.restMoved = false
		wt.regional.recordGatewayFirstByte(x)
	}
}

// finishAnswer records a complete answer.
func (wt *workerTier) finishAnswer(x *simulatedRequest) {
	if x.ended {
		return
	}
	q, s := x.req, x.sequence
	u := openai.TokenUsage{Prompt: q.PromptTokens + x.priorTokens, Completion: q.Output - x.priorTokens, Cached: s.CachedTokens(), Stated: true}
	wt.recorder.recordService(x)
	x.addDecoding(-1)
	if x.balancer == nil {
		x.instance.sim.finishAttempt(x.attempt, u, endComplete, wt.loop.currentTime(), wt.loop.currentTime())
		u.Prompt, u.Completion = q.PromptTokens, q.Output
		wt.regional.releaseGateways(x, u, true)
		wt.zones.handleSettled(x.instance)
	}
	wt.recorder.recordCompletion(x)
	wt.requests.endRequest(x, true)
}

// endLostAttempt ends a failed attempt, and retries the request elsewhere if it may.
func (wt *workerTier) endLostAttempt(x *simulatedRequest, how attemptEnd, code string) {
	now := wt.loop.currentTime()
	had := 0
	wt.recorder.recordService(x)
	if x.sequence != nil {
		had = x.sequence.GeneratedTokens()
	}
	if had > 0 {
		x.addDecoding(-1)
	}
	if x.balancer != nil {
		if how == endTooLong {
			wt.requests.refuseRequest(x, code)
		} else {
			wt.baselines.handleReplicaLoss(x)
		}
		return
	}
	x.instance.sim.finishAttempt(x.attempt, openai.TokenUsage{Completion: had}, how, wt.loop.timeAt(x.lastTokenAt), now)
	at := x.attempt
	seat := x.handle
	x.worker, x.sequence, x.attempt = nil, nil, nil
	if how == endConnectionLost {
		wt.loop.addEvent(event{at: wt.loop.now + 1, kind: evScrapeNow, index: seat.index}) // a lost answer causes a scrape at once
	}
	switch {
	case had > 0 && wt.zones.resumeInZone(x, at, had):
		wt.zones.requestWorker(x)
	case had > 0:
		x.priorTokens += had
		wt.requests.endCutStream(x)
	case how == endTooLong:
		wt.requests.refuseRequest(x, code)
	case how != endOverloaded && x.instance.sim.takeRetry(x.zoneRequest, at, now):
		wt.result.Retried++
		wt.zones.requestWorker(x)
	default:
		wt.regional.handleZoneRefusal(x, code)
	}
	wt.zones.handleSettled(x.instance)
}

// queueGivenUp queues an attempt that the scheduler has given up.
func (wt *workerTier) queueGivenUp(x *simulatedRequest) { wt.givenUp = append(wt.givenUp, x) }

// cancelGivenUp carries out the attempts that schedulers gave up.
func (wt *workerTier) cancelGivenUp() {
	// A scheduler gives up a worker's attempts in random order, and later events depend on the order.
	slices.SortFunc(wt.givenUp, func(a, b *simulatedRequest) int { return cmp.Compare(a.req.ID, b.req.ID) })
	for len(wt.givenUp) > 0 {
		x := wt.givenUp[0]
		wt.givenUp = wt.givenUp[1:]
		if x.ended || x.worker == nil {
			continue
		}
		w := x.worker
		if x.sequence != nil {
			w.engine.SettleTo(wt.loop.currentTime())
			w.engine.Cancel(x.sequence)
			wt.scheduleStep(w)
		}
		how := endGivenUp
		if x.cutByWorker {
			how, x.cutByWorker = endConnectionLost, false
		}
		wt.endLostAttempt(x, how, openai.CodeUpstream)
	}
}
