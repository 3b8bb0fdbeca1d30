package regional

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/routing"
)

// requestLoop makes attempts for a request until its response has ended. When the forwarder detaches a response,
// the handler returns, and the loop continues at the end of the response.
type requestLoop struct {
	g       *gatewayServer
	w       http.ResponseWriter
	r       *http.Request
	q       *gatewayRequest
	release func() // ends the count of the request as in flight

	lastResult forward.Result
	retries    int
	splicer    *resume.Splicer // the kept part of the response
	followed   bool
}

// settleUnlessFollowed settles the request, unless its response is detached. It is for defer.
func (j *requestLoop) settleUnlessFollowed() {
	if j.followed {
		return
	}
	j.g.textStore.ReleaseStream(j.splicer)
	defer j.release()
	j.g.deaths.endSuspectAttempt(j.q)
	j.g.settleRequest(j.q)
	j.g.logEnd(j.q, j.r)
}

// startAttempts chooses an endpoint, forwards the request, and retries once elsewhere if no response had begun.
func (j *requestLoop) startAttempts() {
	if e := j.g.deaths.admitSuspect(j.q); e != nil {
		j.g.refuseRequest(j.w, j.q, e)
		return
	}
	j.prepareResume()
	j.splicer = j.q.resumption.splicer
	j.runAttempts()
}

// runAttempts makes attempts until the response has ended or is detached.
func (j *requestLoop) runAttempts() {
	g, w, q := j.g, j.w, j.q
	for ; ; j.retries++ {
		p, outcome := j.dispatchWithFallback()
		g.metrics.countHeldSpill(q, &p.route.Decision)
		switch {
		case outcome == routing.PastDeadline:
			g.refuseRequest(w, q, openai.DeadlineUnmeetable("regional"))
			return
		case outcome != routing.Dispatched && q.resumption.continuing:
			j.breakStream(&p.route.Decision, j.lastResult, resumeFailed, resume.NoEndpoint)
			return
		case outcome != routing.Dispatched:
			j.answerNoEndpoint()
			return
		}
		res := j.makeAttempt(p)
		if j.followed = res.Outcome == forward.Detached; j.followed {
			return
		}
		if !j.concludeAttempt(p, res) {
			return
		}
	}
}

// continueAfterFollow continues the loop when a detached response has ended.
func (j *requestLoop) continueAfterFollow(p *gatewayAttempt, res forward.Result) {
	j.followed = false
	defer j.settleUnlessFollowed()
	if j.concludeAttempt(p, res) {
		j.retries++
		j.runAttempts()
	}
}

// concludeAttempt accounts for an attempt, and reports whether there is to be another.
func (j *requestLoop) concludeAttempt(p *gatewayAttempt, res forward.Result) (another bool) {
	g, q, d := j.g, j.q, &p.route.Decision
	j.lastResult = res
	q.spilled = d.IsSpilled()
	q.applyRetriesLeft(&j.lastResult)
	g.deaths.recordDeaths(q, &res)
	switch {
	case res.Outcome == forward.Interrupted:
		if !j.resumeStream(d, res) {
			return false
		}
		j.retries = -1
		return true
	case j.recordSpillOutcome(d, &res), q.switchToHedge(d, &j.lastResult):
		j.retries--
		return true
	}
	if !res.Outcome.MayRetry() || j.retries > 0 || q.hop.RetriesLeft == 0 || q.hop.Deaths > 1 || g.terminating.Load() || !(q.retryBudgetTaken || g.router.takeRetry(time.Now())) {
		j.finishRequest(d, res)
		return false
	}
	q.retryCause = retryReason(res)
	g.logRetry(q, d, res)
	q.hop.RetriesLeft = 0
	q.query.ExcludeEndpoint(d.Endpoint)
	g.metrics.retries.WithLabelValues(q.retryCause).Inc()
	return true
}

func retryReason(res forward.Result) string {
	switch {
	case res.NoWorkBegun:
		return "not_started"
	case res.IsGivenUp():
		return "place_lost"
	case res.Status == 0:
		return "connection"
	}
	return "lost_before_first_byte"
}

// answerNoEndpoint responds when no endpoint is left, with the last endpoint's refusal if there was one.
func (j *requestLoop) answerNoEndpoint() {
	g, w, q, last := j.g, j.w, j.q, &j.lastResult
	switch {
	case last.Refusal != nil:
		g.forwardRefusal(w, q, last.Refusal)
	case j.retries > 0:
		g.refuseRequest(w, q, openai.UpstreamFailed("the zone that was chosen could not be reached, and no other can serve the request"))
	default:
		g.refuseRequest(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
	}
}

// finishRequest accounts for a finished attempt and sends the client an error if no response has begun.
func (j *requestLoop) finishRequest(d *routing.RouteDecision, res forward.Result) {
	g, w, q := j.g, j.w, j.q
	status := res.Status
	j.countBrokenStream(&res)
	switch {
	case q.resumption.continuing && q.resumption.splicer != nil && !res.ReachedClient && !res.Outcome.IsClientGone():
		j.breakStream(d, res, resumeFailed, resume.NoEndpoint)
		return
	case res.Outcome.IsClientGone():
		status = statusClientGone
		if q.resumption.continuing && !res.ReachedClient {
			g.bookResumedUsage(q)
		}
	case res.ReachedClient:
		q.setDeathsHeader(w) // sent as a trailer
	case res.Refusal != nil:
		g.forwardRefusal(w, q, res.Refusal)
		g.logRequest(q, d, res, res.Refusal.Status)
		return
	default:
		e := openai.UpstreamFailed("the place that was chosen was lost before it answered")
		if g.terminating.Load() {
			e = openai.NoCapacity(q.query.Model, defaultRetryAfter)
		}
		g.logRequest(q, d, res, e.Status)
		g.refuseRequest(w, q, e)
		return
	}
	if status != statusClientGone {
		g.outcomes.countOutcome(q, status, 0)
	}
	if res.Outcome == forward.BrokenOff || res.Outcome == forward.StreamBroken {
		g.outcomes.countBrokenOutcome(q, status)
	}
	g.metrics.countAnswered(q, status)
	g.metrics.observeFinished(q, d, res)
	q.noteResponse(d, status, res.Outcome == forward.BrokenOff || res.Outcome == forward.StreamBroken)
	g.logRequest(q, d, res, status)
	if res.Outcome == forward.BrokenOff {
		forward.AbortHandler()
	}
}

const (
	// peerContinueTimeout is how long a peer may take to admit a request (100 Continue). After that the body is
	// sent anyway.
	peerContinueTimeout = 500 * time.Millisecond
	// expectContinueSize is the body size from which the gateway sends Expect: 100-continue to a peer. A smaller
	// body fits the first flight of a new connection, so waiting would cost a round trip and save nothing. The
	// peer decides by the same headers before it reads the body, and its refusal marks the request as not started.
	expectContinueSize = 16 << 10
)

// makeAttempt forwards the request to one endpoint and accounts for it. If the forwarder detaches the response, the call
// returns early, and the loop continues with continueAfterFollow at the end of the response.
func (j *requestLoop) makeAttempt(p *gatewayAttempt) (res forward.Result) {
	g, w, r, q, d := j.g, j.w, j.r, j.q, &p.route.Decision
	hop := q.hop
	forwarder := g.localForwarder
	if d.IsSpilled() {
		forwarder = g.peerForwarder
		fillSpillHop(&hop, q, d)
	} else {
		hop.Ticket = forward.LedgerTicket{Parent: g.cfg.Name, Boot: g.boot, Number: p.route.Ticket}
	}
	if hop.Deadline > 0 {
		hop.Deadline = max(hop.Deadline-time.Since(q.arrived), time.Millisecond)
	}
	q.attempts++
	p.beginContext(r.Context())
	defer func() {
		if res.Outcome != forward.Detached {
			p.ctx.EndWithCause(nil)
			p.finishAttempt()
		}
	}()
	p.beginAttempt()
	req, err := forward.NewEditedHopRequest(&p.ctx, r, "https://"+d.Endpoint+q.path, q.body, &hop)
	if err != nil {
		return forward.Result{Err: err}
	}
	if d.IsSpilled() && q.query.ExpectContinue {
		req.Header.Set("Expect", "100-continue")
	}
	q.trace.SetParent(req.Header, p.span)
	opts := forward.Options{HideUsage: q.hop.AskUsage && !q.fromPeer, Splicer: q.resumption.splicer, Continuing: q.resumption.continuing, Progress: p}
	if q.fromPeer && !q.resumption.continuing && !g.cfg.NoFast {
		p.senderWriter = w
	}
	opts.OnDetachedEnd = func(res forward.Result) {
		j.recordAttemptResult(p, &res)
		p.ctx.EndWithCause(nil)
		p.finishAttempt()
		j.continueAfterFollow(p, res)
	}
	if res = forwarder.ForwardWith(&p.ctx, w, req, p, opts); res.Outcome != forward.Detached {
		j.recordAttemptResult(p, &res)
	}
	return res
}

// fillSpillHop sets the headers by which the peer admits or refuses the request before its body: how long it may
// take there.
func fillSpillHop(hop *forward.Hop, q *gatewayRequest, v *routing.RouteDecision) {
	hop.Hops++
	hop.SpillWithin = time.Duration(v.SpillCostLimit * float64(time.Second))
	if n := len(q.query.Prefix); n > 0 {
		hop.Prefix = q.query.Prefix[n-1]
	}
}

// recordAttemptResult records the result of an attempt.
func (j *requestLoop) recordAttemptResult(p *gatewayAttempt, res *forward.Result) {
	g, q := j.g, p.q
	if res.Status == 0 && res.Outcome.MayRetry() && !res.IsGivenUp() && !isConnectedElsewhere(res.Err) {
		g.router.suspectEndpoint(p.route.Decision.Endpoint, time.Now())
	}
	p.result = res
	if p.answer != nil {
		q.reportedDeaths = max(q.reportedDeaths, deathsFromHeader(p.answer.Trailer))
	}
	if q.resumption.continuing && res.ReachedClient && res.Err == nil {
		forward.MarkResumed(j.w, tierName)
		g.metrics.resumes.WithLabelValues(resumeResumed, "").Inc()
	}
}

// recordSpillOutcome records the outcome of a spill. again reports that the peer refused the request and that it is
// routed again: no work was done for it yet, so this takes nothing from the retry budget.
func (j *requestLoop) recordSpillOutcome(d *routing.RouteDecision, res *forward.Result) (again bool) {
	if !d.IsSpilled() || res.Status == 0 {
		return false
	}
	if res.NoWorkBegun {
		j.g.metrics.spillRefusals.WithLabelValues(d.Path.Region).Inc()
	}
	return j.g.router.recordSpillOutcome(&j.q.query, d, res.NoWorkBegun, time.Now())
}

// dispatchWithFallback begins an attempt for the resolved model or, when no endpoint can meet the class's TTFT target
// with it, for a fallback model that can. A model that the client pinned stays, and so does one of another region's
// request, which was resolved there.
func (j *requestLoop) dispatchWithFallback() (*gatewayAttempt, routing.DispatchOutcome) {
	g, q := j.g, j.q
	p := &gatewayAttempt{g: g, q: q}
	if q.model.Fallback == "" || !q.tenant.Fallback || q.modelPinned || q.fromPeer || !openai.ContinuesPrompt(q.path) {
		return p, g.dispatchRequest(q, p)
	}
	q.query.TTFTTarget = q.model.TTFT.ForClass(q.query.Class).Seconds()
	outcome := g.dispatchRequest(q, p)
	if isMissed(outcome) {
		outcome = j.dispatchFallback(p)
	}
	if q.query.TTFTTarget = 0; isMissed(outcome) {
		outcome = g.dispatchRequest(q, p)
	}
	return p, outcome
}

// isMissed reports whether another model may still serve the request in time.
func isMissed(o routing.DispatchOutcome) bool {
	return o == routing.NoEndpoint || o == routing.MissesTarget
}

// dispatchFallback begins an attempt for the first fallback model that meets the query's TTFT target.
func (j *requestLoop) dispatchFallback(p *gatewayAttempt) routing.DispatchOutcome {
	g, q := j.g, j.q
	for m := range modelroute.FallbackModels(q.policy.spec, q.tenant, q.model) {
		svc := q.policy.spec.FindService(q.service)
		if !q.policy.servesModel(svc, m.Name, m.Name) || exceedsModelLimits(m, q.query.PromptTokens, q.env.MaxTokens) {
			continue
		}
		own := q.query
		q.query.Model, q.query.MaxTokens = m.Name, g.tenants.expectedOutput(m.Name, demand.OutputLimit(m, q.env.MaxTokens))*q.env.N
		if outcome := g.dispatchRequest(q, p); !isMissed(outcome) {
			j.applyFallback(m)
			return outcome
		}
		q.query = own
	}
	return routing.MissesTarget
}

// exceedsModelLimits reports whether a prompt and the requested output certainly exceed the model's limits.
func exceedsModelLimits(m *spec.Model, prompt, output int) bool {
	return m.MaxContext > 0 && routing.MinPromptTokens(prompt)+output > m.MaxContext || m.OutputLimit > 0 && output > m.OutputLimit
}

// applyFallback switches to another model, and reports it in the response.
func (j *requestLoop) applyFallback(m *spec.Model) {
	q := j.q
	j.g.metrics.countFallback(q.model.Name, m.Name)
	q.setModel(m)
	q.hop.Model = m.Name
	j.w.Header().Set(forward.HeaderFallback, q.env.Model+" -> "+m.Name)
}

// runPassthrough selects a zone, streams, and retries once elsewhere if no response had begun and the body
// can be sent again.
func (j *requestLoop) runPassthrough(ctx context.Context) {
	g, w, q := j.g, j.w, j.q
	for try := 0; ; try++ {
		p := &gatewayAttempt{g: g, q: q}
		switch outcome := g.dispatchRequest(q, p); {
		case outcome == routing.PastDeadline:
			g.refuseRequest(w, q, openai.DeadlineUnmeetable("regional"))
			return
		case outcome != routing.Dispatched && try == 0:
			g.refuseRequest(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
			return
		case outcome != routing.Dispatched:
			g.refuseRequest(w, q, openai.UpstreamFailed("the zone that was chosen could not be reached, and no other can serve the request"))
			return
		}
		res := j.attemptPassthrough(ctx, p)
		if !res.Outcome.MayRetry() || try > 0 || !q.replay.CanReplay() || !g.router.takeRetry(time.Now()) {
			j.finishPassthrough(&p.route.Decision, &res)
			return
		}
		q.retryCause = retryReason(res)
		g.logRetry(q, &p.route.Decision, res)
		q.hop.RetriesLeft = 0
		q.query.FailedEndpoints[0] = p.route.Decision.Endpoint
		g.metrics.retries.WithLabelValues(q.retryCause).Inc()
	}
}

// attemptPassthrough streams the request through one zone and accounts for it.
func (j *requestLoop) attemptPassthrough(ctx context.Context, p *gatewayAttempt) forward.Result {
	g, w, r, q := j.g, j.w, j.r, j.q
	defer p.finishAttempt()
	hop := q.hop
	hop.Ticket = forward.LedgerTicket{Parent: g.cfg.Name, Boot: g.boot, Number: p.route.Ticket}
	if hop.Deadline > 0 {
		hop.Deadline = max(hop.Deadline-time.Since(q.arrived), time.Millisecond)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.cancel = cancel
	p.beginAttempt()
	req, err := forward.NewStreamingRequest(ctx, r, "https://"+p.route.Decision.Endpoint+q.path, q.kind, q.replay.OpenObserved(p.WroteRequest), &hop)
	if err != nil {
		return forward.Result{Err: err}
	}
	q.trace.SetParent(req.Header, p.span)
	if q.kind == forward.GRPC && hop.Deadline > 0 {
		req.Header.Set(grpcmeta.HeaderTimeout, grpcmeta.FormatTimeout(hop.Deadline))
	}
	var res forward.Result
	if q.kind == forward.WebSocket {
		res = g.passthroughForwarder.ForwardTunnel(ctx, w, req, p, forward.TunnelLimits{IdleTimeout: g.cfg.TunnelIdle, MaxLifetime: g.cfg.TunnelLife, ToOwnTier: true})
	} else {
		res = g.passthroughForwarder.ForwardStreaming(forward.ObserveInterim(ctx, p.GotInterim), w, req, q.kind, p)
	}
	if res.Status == 0 && res.Outcome.MayRetry() && !res.IsGivenUp() {
		g.router.suspectEndpoint(p.route.Decision.Endpoint, time.Now())
	}
	p.result = &res
	if p.isAbandoned() || res.ReachedClient && (res.Status/100 == 2 || res.Status == http.StatusSwitchingProtocols) {
		q.recordPassthroughUsage(&res)
	}
	return res
}

// finishPassthrough accounts for a finished attempt and sends the client an error if no response has begun.
func (j *requestLoop) finishPassthrough(d *routing.RouteDecision, res *forward.Result) {
	g, w, q := j.g, j.w, j.q
	var e *openai.Error
	switch {
	case res.ReachedClient:
	case res.MessageRefusal != nil:
		e = res.MessageRefusal
	case res.Outcome == forward.DeadlinePassed:
		e = openai.DeadlineUnmeetable("regional")
	case q.replay.SlowError() != nil:
		e = q.replay.SlowError()
	case res.Outcome.IsClientGone():
	case res.Refusal != nil && q.kind == forward.GRPC:
		e = res.Refusal.AsOpenAIError()
	case res.Refusal != nil:
		g.forwardRefusal(w, q, res.Refusal)
		g.logRequest(q, d, *res, res.Refusal.Status)
		return
	default:
		e = openai.UpstreamFailed("the place that was chosen was lost before it answered")
	}
	if e != nil {
		g.logRequest(q, d, *res, e.Status)
		g.refuseRequest(w, q, e)
		return
	}
	if res.TunnelEnd != "" {
		g.metrics.tunnels.WithLabelValues(res.TunnelEnd).Inc()
		res.Outcome, res.Err = forward.Completed, nil // the tunnel was open until its end, which either side may cause
	}
	j.finishRequest(d, *res)
}
