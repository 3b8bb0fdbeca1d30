package regional

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/routing"
)

// defaultRetryAfter is the Retry-After hint when the time until there is room is unknown.
const defaultRetryAfter = 2 * time.Second

// dispatchRequest chooses an endpoint for a request and begins an attempt there.
func (g *gatewayServer) dispatchRequest(q *gatewayRequest, p *gatewayAttempt) routing.DispatchOutcome {
	q.assignPool()
	if q.query.Deadline = (time.Time{}); q.hop.Deadline > 0 && !q.resumption.continuing {
		q.query.Deadline = q.arrived.Add(q.hop.Deadline)
	}
	p.route.Owner, p.route.MayRetry = p, q.hop.RetriesLeft > 0
	return g.router.dispatch(&q.query, &p.route, time.Now())
}

// forwardRefusal forwards a refusal of a tier below. A peer may refuse a request that is valid here, because it
// has another spec for the tenant or the model. The client cannot fix that, so it receives "no capacity".
func (g *gatewayServer) forwardRefusal(w http.ResponseWriter, q *gatewayRequest, f *forward.Refusal) {
	if q.spilled && f.Status < http.StatusInternalServerError {
		g.refuseRequest(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
		return
	}
	id := w.Header().Get(forward.HeaderXRequestID)
	if id != "" {
		f.Header.Set(forward.HeaderXRequestID, id)
	}
	g.metrics.countAnswered(q, f.Status)
	g.outcomes.countOutcome(q, f.Status, 0)
	if q.fromPeer {
		q.writeRetriesLeft(w)
		q.setDeathsHeader(w)
	}
	f.WriteAnswer(w, q.fromPeer)
}

// statusClientGone is the status in metrics and logs when the client disconnected, as in nginx.
const statusClientGone = 499

// logRequest writes the one log line of a request.
func (g *gatewayServer) logRequest(q *gatewayRequest, d *routing.RouteDecision, res forward.ForwardResult, status int) {
	if (res.Err == nil || res.ClientGone) && !g.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{
		telemetry.KeyRequest, q.hop.RequestID, telemetry.KeyTenant, q.hop.Tenant, telemetry.KeyModel, q.query.Model, "status", status,
		"to", d.Path.String(), "reason", d.Reason, "tokens", q.totalTokens, "seconds", time.Since(q.arrived).Seconds(),
	}
	if q.retryCause != "" {
		attrs = append(attrs, "retried", q.retryCause)
	}
	if res.Err != nil && !res.ClientGone {
		g.log.Warn("request failed", append(attrs, telemetry.ErrorAttr(res.Err))...)
		return
	}
	g.log.Debug("request served", attrs...)
}

// logRetry logs the failed attempt of a request that is sent to another endpoint: its final log line has the last attempt
// only.
func (g *gatewayServer) logRetry(q *gatewayRequest, d *routing.RouteDecision, res forward.ForwardResult) {
	g.log.Debug("an attempt failed, another endpoint is tried", telemetry.KeyRequest, q.hop.RequestID, "to", d.Path.String(),
		"cause", q.retryCause, "answer", res.Status, telemetry.ErrorAttr(res.Err))
}

// bookUsage books the usage of a response, once for each request. For a stream continued at another endpoint, the
// prompt was counted with the first one.
func (g *gatewayServer) bookUsage(q *gatewayRequest, u *openai.TokenUsage, whole bool) {
	q.totalTokens, q.usage = u.Prompt+u.Completion, *u
	if whole {
		g.tenants.learnOutput(q.query.Model, u.Completion/max(q.env.N, 1))
	}
	if q.resumption.startedElsewhere {
		u.Prompt, u.Cached = 0, 0
	}
	g.metrics.countTokens(q, u)
}

// bookResumedUsage counts the tokens of a resumed stream's whole response, once.
func (g *gatewayServer) bookResumedUsage(q *gatewayRequest) {
	u := q.resumption.splicer.UsageOrEstimate(q.resumption.promptTokens)
	g.bookUsage(q, &u, false)
}
