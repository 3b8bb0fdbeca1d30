package regional

import (
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/routing"
)

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
func (j *requestLoop) makeAttempt(p *gatewayAttempt) (res forward.ForwardResult) {
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
	p.beginContext(r.Context())
	defer func() {
		if !res.Detached {
			p.ctx.EndWithCause(nil)
			p.finishAttempt()
		}
	}()
	p.begin()
	req, err := forward.NewEditedHopRequest(&p.ctx, r, "https://"+d.Endpoint+q.path, q.body, &hop)
	if err != nil {
		return forward.ForwardResult{Err: err}
	}
	if d.IsSpilled() && q.query.ExpectContinue {
		req.Header.Set("Expect", "100-continue")
	}
	opts := forward.ForwardOptions{HideUsage: q.hop.AskUsage && !q.fromPeer, Splicer: q.resumption.splicer, Continuing: q.resumption.continuing, Progress: p}
	if q.fromPeer && !q.resumption.continuing && !g.cfg.NoFast {
		p.senderWriter = w
	}
	opts.OnDetachedEnd = func(res forward.ForwardResult) {
		j.recordAttemptResult(p, &res)
		p.ctx.EndWithCause(nil)
		p.finishAttempt()
		j.continueAfterFollow(p, res)
	}
	if res = forwarder.ForwardWith(&p.ctx, w, req, p, opts); !res.Detached {
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
func (j *requestLoop) recordAttemptResult(p *gatewayAttempt, res *forward.ForwardResult) {
	g, q := j.g, p.q
	if res.Status == 0 && res.Retryable && !res.IsGivenUp() && !isConnectedElsewhere(res.Err) {
		g.router.suspectEndpoint(p.route.Decision.Endpoint, time.Now())
	}
	p.result = res
	if p.answer != nil {
		q.reportedDeaths = max(q.reportedDeaths, deathsFromHeader(p.answer.Trailer))
	}
	if q.resumption.continuing && res.Started && res.Err == nil {
		forward.MarkResumed(j.w, tierName)
		g.metrics.resumes.WithLabelValues(resumeResumed, "").Inc()
	}
}

// recordSpillOutcome records the outcome of a spill. again reports that the peer refused the request and that it is
// routed again: no work was done for it yet, so this takes nothing from the retry budget.
func (j *requestLoop) recordSpillOutcome(d *routing.RouteDecision, res *forward.ForwardResult) (again bool) {
	if !d.IsSpilled() || res.Status == 0 {
		return false
	}
	if res.NotStarted {
		j.g.metrics.spillRefusals.WithLabelValues(d.Path.Region).Inc()
	}
	return j.g.router.recordSpillOutcome(&j.q.query, d, res.NotStarted, time.Now())
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
