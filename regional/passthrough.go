package regional

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
)

// maxPassthroughPath bounds a path that is forwarded without parsing.
const maxPassthroughPath = 2048

// servePassthrough handles a request whose body the gateway does not parse: a gRPC call or a WebSocket. It stays
// in this region, because a bidirectional stream cannot wait for a peer's admission.
func (g *gatewayServer) servePassthrough(w http.ResponseWriter, r *http.Request, kind forward.Kind, id string, arrived time.Time) {
	if kind == forward.GRPC {
		w = forward.WithGRPCErrors(w)
	}
	q := &gatewayRequest{arrived: arrived, hop: forward.Hop{RequestID: id, RetriesLeft: 1}, noGeneratedText: true, kind: kind, access: accessNote{method: r.Method, path: r.URL.Path}, trace: g.tracer.BeginHTTPRequest(r.Header)}
	defer func() {
		g.settleRequest(q)
		g.logEnd(q, r)
	}()
	leave, e := g.acquireRequestSlot(r)
	if e != nil {
		g.refuseRequest(w, q, e)
		return
	}
	defer leave()
	g.metrics.passthroughRequests.WithLabelValues(kindName(kind)).Inc()
	q.replay = forward.NewReplayBody(r.Body)
	defer q.replay.Close()
	if e := g.admitPassthrough(w, r, q); e != nil {
		g.refuseRequest(w, q, e)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if d := q.hop.Deadline; d > 0 {
		var over context.CancelFunc
		ctx, over = context.WithDeadlineCause(ctx, arrived.Add(d), forward.ErrClientDeadline)
		defer over()
	}
	if kind == forward.WebSocket {
		defer g.tunnels.AddTunnel(cancel)()
	}
	j := requestLoop{g: g, w: w, r: r, q: q}
	j.runPassthrough(ctx)
}

// acquireRequestSlot counts a request as in flight, for the gateway and for its client. The returned function ends
// that.
func (g *gatewayServer) acquireRequestSlot(r *http.Request) (leave func(), e *openai.Error) {
	if g.inFlight.Add(1) > int64(g.cfg.MaxStreams) {
		g.inFlight.Add(-1)
		return nil, openai.NoCapacity("another request", time.Second)
	}
	client := g.auth.clientAddr(r)
	if !g.clientLimiter.addRequest(client, g.cfg.ClientStreams) {
		g.inFlight.Add(-1)
		return nil, openai.ClientStreams(g.cfg.ClientStreams)
	}
	return func() {
		g.clientLimiter.removeRequest(client)
		g.inFlight.Add(-1)
	}, nil
}

// admitPassthrough runs every check that can refuse the request before an endpoint is chosen.
func (g *gatewayServer) admitPassthrough(w http.ResponseWriter, r *http.Request, q *gatewayRequest) *openai.Error {
	q.policy = g.policy.Load()
	if !q.policy.isReady() {
		return openai.NotReady()
	}
	var e *openai.Error
	var client netip.Addr
	if q.tenant, q.path, client, e = g.auth.authenticateClient(r, q.policy); e != nil {
		return e
	}
	q.client = client
	switch {
	case !q.policy.spec.PermitsRegion(q.tenant, q.policy.region):
		return openai.ResidencyDenied(g.cfg.Region)
	case len(q.path) > maxPassthroughPath:
		return paths.NotFoundError(r.URL.Path)
	}
	svc, e := q.policy.requestedService(r.Host)
	if e != nil {
		return e
	}
	if e = g.tenants.enterRequest(q, w.Header()); e != nil {
		return e
	}
	deadline := deadlineOf(r.Header)
	if d, ok := grpcmeta.ParseTimeout(r.Header.Get(grpcmeta.HeaderTimeout)); ok && (deadline == 0 || d < deadline) {
		deadline = max(d, time.Millisecond)
	}
	q.replay.SetLimits(w, g.bodyBounds(q, deadline), false)
	if svc != nil {
		q.service = svc.Name
	}
	as, e := q.findModelName(r, svc)
	if e != nil {
		return e
	}
	if e = g.resolveModel(r, q, svc); e != nil {
		return e
	}
	if q.kind == forward.GRPC && grpcmeta.NamesModel(r.URL.Path) && q.isModelRestricted(svc) {
		q.replay.CheckMessages(q.newModelCheck(svc))
	}
	as(q.model.Name)
	q.modelPinned = true // whether another model's response is acceptable is unknown
	if e = q.fillQuery(r.Header); e != nil {
		return e
	}
	q.query.Spill, q.hop.Deadline = false, deadline
	return g.chargeTenant(w, q)
}

// kindName returns the kind as metrics name it.
func kindName(k forward.Kind) string {
	switch k {
	case forward.GRPC:
		return "grpc"
	case forward.WebSocket:
		return "websocket"
	}
	return "usual"
}

// passthroughMetrics count requests that are forwarded without parsing.
type passthroughMetrics struct{ tunnels, passthroughRequests *prometheus.CounterVec }

func newPassthroughMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) passthroughMetrics {
	return passthroughMetrics{
		tunnels:             counter("tunnels_total", "Closed WebSockets, by cause: client, worker, idle, age or stopped.", "by"),
		passthroughRequests: counter("passthrough_requests_total", "Requests whose body is not parsed, by kind: grpc or websocket.", "kind"),
	}
}
