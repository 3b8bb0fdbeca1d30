package regional

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/routing"
)

// serveClient handles requests at the public listener.
func (g *gatewayServer) serveClient(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	forward.StripTierHeaders(r.Header)
	id := requestID(r.Header, newRequestID)
	w.Header()[forward.HeaderXRequestID] = []string{id}
	g.announceHTTP3(w.Header(), r.ProtoMajor)
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // the prober may have disconnected
		return
	}
	if openai.IsAnthropicPath(r.URL.Path) {
		w = forward.WithAnthropicErrors(w)
	}
	extra := g.extraPaths()
	shape, passes := paths.MatchPath(paths.HTTP, r.URL, extra)
	if passes && r.Method == http.MethodPost && (shape != openai.ShapeUnknown || forward.KindOf(r) == forward.Buffered) {
		g.serveRequest(w, r, shape, id, arrived)
		return
	}
	_, lists := openai.IsModelsPath(r.URL.Path)
	switch kind := forward.KindOf(r); {
	case r.Method == http.MethodConnect && r.ProtoMajor > 1:
		g.refuseUnrouted(w, r, id, arrived, connectUnsupportedError())
	case kind != forward.Buffered:
		if _, ok := paths.MatchPath(protocolOf(kind), r.URL, extra); !ok {
			if kind == forward.GRPC {
				w = forward.WithGRPCErrors(w)
			}
			g.refuseUnrouted(w, r, id, arrived, paths.NotFoundError(r.URL.Path))
			return
		}
		g.servePassthrough(w, r, kind, id, arrived)
	case lists && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		e := g.serveModels(w, r)
		if e != nil {
			g.refuseRequest(w, nil, e)
		}
		g.logUnroutedAccess(r, id, arrived, e)
	default:
		g.refuseUnrouted(w, r, id, arrived, forward.RefuseUnserved(w.Header(), r, extra))
	}
}

// extraPaths are the paths that the spec allows in addition to the built-in ones.
func (g *gatewayServer) extraPaths() []string {
	if st := g.policy.Load(); st.isReady() {
		return st.spec.Routing.ExtraPaths
	}
	return nil
}

// protocolOf maps a forwarding kind to the protocol in the list of paths.
func protocolOf(k forward.Kind) paths.PathProtocol {
	switch k {
	case forward.GRPC:
		return paths.GRPC
	case forward.WebSocket:
		return paths.WebSocket
	}
	return paths.HTTP
}

func newRequestID() string {
	a, b := rand.Uint64(), rand.Uint64()
	var id [32]byte // at most 13 digits each
	return string(strconv.AppendUint(strconv.AppendUint(append(id[:0], "req_"...), a, 36), b, 36))
}

// connectUnsupportedError refuses CONNECT over HTTP/2 and HTTP/3, which requests a WebSocket there (RFC 8441 and
// RFC 9220, which name the status).
func connectUnsupportedError() *openai.Error {
	return &openai.Error{
		Status: http.StatusNotImplemented, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "CONNECT is not served here; open a WebSocket over HTTP/1.1, and not over HTTP/2 or HTTP/3",
	}
}

// serveRequest handles a client's request from its first header to its last byte.
func (g *gatewayServer) serveRequest(w http.ResponseWriter, r *http.Request, shape openai.Shape, id string, arrived time.Time) {
	q := &gatewayRequest{arrived: arrived, shape: shape, hop: forward.Hop{RequestID: id, RetriesLeft: 1}, access: accessNote{method: r.Method, path: r.URL.Path}, trace: g.tracer.BeginHTTPRequest(r.Header)}
	leave, e := g.acquireRequestSlot(r)
	if e != nil {
		g.refuseRequest(w, q, e)
		g.logEnd(q, r)
		return
	}
	j := requestLoop{g: g, w: w, r: r, q: q, release: leave}
	defer j.settleUnlessFollowed()
	if e = g.admitRequest(w, r, q); e != nil {
		g.refuseRequest(w, q, e)
		return
	}
	j.startAttempts()
}

// refuseUnrouted refuses a request that would not reach a tier below, and writes its access line.
func (g *gatewayServer) refuseUnrouted(w http.ResponseWriter, r *http.Request, id string, arrived time.Time, e *openai.Error) {
	g.refuseRequest(w, nil, e)
	g.logUnroutedAccess(r, id, arrived, e)
}

// refuseRequest responds with an error of the gateway and counts it.
func (g *gatewayServer) refuseRequest(w http.ResponseWriter, q *gatewayRequest, e *openai.Error) {
	g.metrics.countRefused(q, e)
	g.outcomes.countOutcome(q, e.Status, 0)
	if q != nil {
		q.setDeathsHeader(w)
		q.access.status, q.access.code = e.Status, e.Code
	}
	if q != nil && q.fromPeer && e.Code != openai.CodeKillsWorkers {
		q.writeRetriesLeft(w)
		forward.WriteNotStarted(w, e)
		return
	}
	forward.WriteError(w, e)
}

// serveModels lists the models that the client may use and that are served, or one of them. With an error, nothing is written.
func (g *gatewayServer) serveModels(w http.ResponseWriter, r *http.Request) *openai.Error {
	st := g.policy.Load()
	if !st.isReady() {
		return openai.NotReady()
	}
	t, _, _, e := g.auth.authenticateClient(r, st)
	if e != nil {
		return e
	}
	svc, e := st.requestedService(r.Host)
	if e != nil {
		return e
	}
	one, _ := openai.IsModelsPath(r.URL.Path)
	answer, e := openai.EncodeModels(g.listServedModels(st, t, svc), one, g.started.Unix())
	if e != nil {
		return e
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the client may have disconnected
	return nil
}

// listServedModels lists models and aliases that some zone or permitted peer has workers for, that the service serves and that the
// tenant may use.
func (g *gatewayServer) listServedModels(st *gatewayPolicy, t *spec.Tenant, svc *spec.Service) []string {
	v := g.router.view.Load()
	there := func(name string) bool {
		for i := range v.Locals {
			if m := v.Locals[i].Summary.FindModel(name); m != nil && m.Total > 0 {
				return true
			}
		}
		for i := range v.Peers {
			p := &v.Peers[i]
			if p.Summary == nil || !st.spec.PermitsRegion(t, st.spec.FindRegion(p.Region)) {
				continue
			}
			if m := p.Summary.FindModel(name); m != nil && m.Total > 0 {
				return true
			}
		}
		return false
	}
	may := func(asked, model string) bool {
		return t.MayUseModel(asked, model) && st.servesModel(svc, asked, model) && there(model)
	}
	var names []string
	for i := range st.spec.Models {
		if n := st.spec.Models[i].Name; may(n, n) {
			names = append(names, n)
		}
	}
	for i := range st.spec.Aliases {
		a := &st.spec.Aliases[i]
		if slices.ContainsFunc(a.Targets, func(x spec.AliasTarget) bool { return may(a.Name, x.Model) }) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names
}

// defaultRetryAfter is the Retry-After hint when the time until there is room is unknown.
const defaultRetryAfter = 2 * time.Second

// dispatchRequest chooses an endpoint for a request and begins an attempt there.
func (g *gatewayServer) dispatchRequest(q *gatewayRequest, p *gatewayAttempt) routing.DispatchOutcome {
	q.assignPool()
	if q.query.Deadline = (time.Time{}); q.hop.Deadline > 0 && !q.resumption.continuing {
		q.query.Deadline = q.arrived.Add(q.hop.Deadline)
	}
	p.route.Owner, p.route.MayRetry = p, q.hop.RetriesLeft > 0
	return g.router.dispatchRequest(&q.query, &p.route, time.Now())
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
	q.access.status = f.Status
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
func (g *gatewayServer) logRequest(q *gatewayRequest, d *routing.RouteDecision, res forward.Result, status int) {
	if (res.Err == nil || res.Outcome.IsClientGone()) && !g.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{
		telemetry.KeyRequest, q.hop.RequestID, telemetry.KeyTenant, q.hop.Tenant, telemetry.KeyModel, q.query.Model, "status", status,
		"to", d.Path.String(), "reason", d.Reason, "tokens", q.totalTokens, "seconds", time.Since(q.arrived).Seconds(),
	}
	if q.retryCause != "" {
		attrs = append(attrs, "retried", q.retryCause)
	}
	if res.Err != nil && !res.Outcome.IsClientGone() {
		g.log.Warn("request failed", append(attrs, telemetry.ErrorAttr(res.Err))...)
		return
	}
	g.log.Debug("request served", attrs...)
}

// logRetry logs the failed attempt of a request that is sent to another endpoint: its final log line has the last attempt
// only.
func (g *gatewayServer) logRetry(q *gatewayRequest, d *routing.RouteDecision, res forward.Result) {
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
