package regional

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

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
		if !res.Retryable || try > 0 || !q.replay.CanReplay() || !g.router.takeRetry(time.Now()) {
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
func (j *requestLoop) attemptPassthrough(ctx context.Context, p *gatewayAttempt) forward.ForwardResult {
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
	p.begin()
	req, err := forward.NewStreamingRequest(ctx, r, "https://"+p.route.Decision.Endpoint+q.path, q.kind, q.replay.OpenObserved(p.WroteRequest), &hop)
	if err != nil {
		return forward.ForwardResult{Err: err}
	}
	if q.kind == forward.GRPC && hop.Deadline > 0 {
		req.Header.Set(grpcmeta.HeaderTimeout, grpcmeta.FormatTimeout(hop.Deadline))
	}
	var res forward.ForwardResult
	if q.kind == forward.WebSocket {
		res = g.passthroughForwarder.ForwardTunnel(ctx, w, req, p, forward.TunnelLimits{IdleTimeout: g.cfg.TunnelIdle, MaxLifetime: g.cfg.TunnelLife, ToOwnTier: true})
	} else {
		res = g.passthroughForwarder.ForwardStreaming(forward.ObserveInterim(ctx, p.GotInterim), w, req, q.kind, p)
	}
	if res.Status == 0 && res.Retryable && !res.IsGivenUp() {
		g.router.suspectEndpoint(p.route.Decision.Endpoint, time.Now())
	}
	p.result = &res
	if p.isAbandoned() || res.Started && (res.Status/100 == 2 || res.Status == http.StatusSwitchingProtocols) {
		q.recordPassthroughUsage(&res)
	}
	return res
}

// finishPassthrough accounts for a finished attempt and sends the client an error if no response has begun.
func (j *requestLoop) finishPassthrough(d *routing.RouteDecision, res *forward.ForwardResult) {
	g, w, q := j.g, j.w, j.q
	var e *openai.Error
	switch {
	case res.Started:
	case res.MessageRefusal != nil:
		e = res.MessageRefusal
	case res.DeadlinePassed:
		e = openai.DeadlineUnmeetable("regional")
	case q.replay.SlowError() != nil:
		e = q.replay.SlowError()
	case res.ClientGone:
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
		res.ClientGone, res.Err = false, nil // the tunnel was open until its end, which either side may cause
	}
	j.finishRequest(d, *res)
}
