package regional

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/zone"
)

// maxPath bounds a path that is passed on unread.
const maxPath = 2048

// serveThrough takes a request whose body is not read: a gRPC call or a WebSocket. It
// stays in this region: what streams both ways cannot wait for a peer's word.
func (g *Gateway) serveThrough(w http.ResponseWriter, r *http.Request, kind relay.Kind, id string, arrived time.Time) {
	if kind == relay.GRPC {
		w = relay.SpeakGRPC(w)
	}
	q := &request{arrived: arrived, hop: relay.Hop{RequestID: id, RetriesLeft: 1}, infer: true, kind: kind}
	defer g.settle(q)
	leave, e := g.letIn(r)
	if e != nil {
		g.refuse(w, q, e)
		return
	}
	defer leave()
	g.metrics.through.WithLabelValues(kindName(kind)).Inc()
	q.source = relay.NewReplay(r.Body)
	defer q.source.Close()
	if e := g.admitThrough(w, r, q); e != nil {
		g.refuse(w, q, e)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if d := q.hop.Deadline; d > 0 {
		var over context.CancelFunc
		ctx, over = context.WithDeadlineCause(ctx, arrived.Add(d), relay.ErrLate)
		defer over()
	}
	if kind == relay.WebSocket {
		defer g.tunnels.Enter(cancel)()
	}
	g.dispatchThrough(ctx, w, r, q)
}

// letIn counts a request in, for the gateway and for its client. What it returns counts it out.
func (g *Gateway) letIn(r *http.Request) (leave func(), e *openai.Error) {
	if g.inFlight.Add(1) > int64(g.cfg.MaxStreams) {
		g.inFlight.Add(-1)
		return nil, openai.NoCapacity("another request", time.Second)
	}
	client := g.client(r)
	if !g.clients.enter(client, g.cfg.ClientStreams) {
		g.inFlight.Add(-1)
		return nil, openai.ClientStreams(g.cfg.ClientStreams)
	}
	return func() {
		g.clients.leave(client)
		g.inFlight.Add(-1)
	}, nil
}

// admitThrough takes a request through everything that can refuse it before a place is chosen.
func (g *Gateway) admitThrough(w http.ResponseWriter, r *http.Request, q *request) *openai.Error {
	q.state = g.state.Load()
	if !q.state.ready() {
		return openai.NotReady()
	}
	var e *openai.Error
	var client netip.Addr
	if q.tenant, q.path, client, e = g.authenticate(r, q.state); e != nil {
		return e
	}
	q.client = client
	switch {
	case !q.state.spec.Permits(q.tenant, q.state.home):
		return openai.Residency(g.cfg.Region)
	case len(q.path) > maxPath:
		return noSuchPath(r.URL.Path)
	}
	svc, e := q.state.called(r.Host)
	if e != nil {
		return e
	}
	if e = g.enterEarly(w, q); e != nil {
		return e
	}
	deadline := deadlineOf(r.Header)
	if d, ok := grpcwire.Timeout(r.Header.Get(grpcwire.HeaderTimeout)); ok && (deadline == 0 || d < deadline) {
		deadline = max(d, time.Millisecond)
	}
	q.source.Bound(w, g.bodyBounds(q, deadline), false)
	if svc != nil {
		q.service = svc.Name
	}
	as, e := q.named(r, svc)
	if e != nil {
		return e
	}
	if e = g.resolve(r, q, svc); e != nil {
		return e
	}
	if q.kind == relay.GRPC && grpcwire.NamesModel(r.URL.Path) && q.fenced(svc) {
		q.source.Judge(q.judge(svc))
	}
	as(q.model.Name)
	q.settled = true // nobody can say whether another model's answer would do
	if e = q.read(r.Header); e != nil {
		return e
	}
	q.query.Spill, q.hop.Deadline = false, deadline
	return g.enter(w, q, client)
}

// named finds the model that a request is for. as puts the name that it resolves to in its place.
func (q *request) named(r *http.Request, svc *spec.Service) (as func(string), e *openai.Error) {
	q.env.N = 1
	beside, e := relay.NamedModel(r)
	if e != nil {
		return nil, e
	}
	rename := q.rename // the headers are resolve's
	q.env.Model = beside
	if q.kind == relay.GRPC && grpcwire.NamesModel(r.URL.Path) {
		name, inside, e := q.source.Model()
		switch {
		case e == nil && beside != "" && name != beside:
			_, e := relay.AgreeModel(r, name)
			return nil, e
		case e == nil:
			q.env.Model = name
			return func(name string) { rename(name); inside(name) }, nil
		case beside == "" || q.source.Slow() != nil || q.fenced(svc):
			return nil, e
		}
	}
	if q.env.Model == "" {
		e := openai.ModelRequired()
		e.Message = "name a model in the header x-model (gRPC: metadata), or for a WebSocket in the query: ?model=..."
		return nil, e
	}
	return rename, nil
}

// fenced reports whether the caller may not use every model.
func (q *request) fenced(svc *spec.Service) bool {
	return len(q.tenant.Models) > 0 || svc != nil && len(svc.Models) > 0
}

// judge decides whether a message of a call may name a model. Only the first message may name it by an alias: the others go
// on as they are.
func (q *request) judge(svc *spec.Service) func(model string, first bool) *openai.Error {
	asked, served := q.env.Model, q.model.Name
	return func(model string, first bool) *openai.Error {
		switch {
		case model == served || first && model == asked:
			return nil
		case q.state.spec.ModelNamed(model) == nil || svc != nil && !svc.Serves(model, model):
			return openai.ModelNotFound(model, nil)
		case !q.tenant.MayUse(model, model):
			return openai.ModelNotAllowed(model)
		}
		return nil
	}
}

// dispatchThrough chooses a zone, streams, and tries once elsewhere when nothing had begun and the body can be sent again.
func (g *Gateway) dispatchThrough(ctx context.Context, w http.ResponseWriter, r *http.Request, q *request) {
	for try := 0; ; try++ {
		c, ok := g.choose(q)
		switch {
		case !ok && try == 0:
			g.refuse(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
			return
		case !ok:
			g.refuse(w, q, openai.Upstream("the zone that was chosen could not be reached, and no other can serve the request"))
			return
		}
		if d := q.hop.Deadline; d > 0 && c.verdict.Reason != zone.ReasonCold && c.verdict.Seconds > (d-time.Since(q.arrived)).Seconds() {
			g.release(c)
			g.refuse(w, q, openai.DeadlineUnmeetable("regional"))
			return
		}
		res := g.attemptThrough(ctx, w, r, q, c)
		if !res.Retryable || try > 0 || !q.source.Again() || !g.mayRetry() {
			g.endThrough(ctx, w, q, c, &res)
			return
		}
		q.retried = retryReason(res)
		q.hop.RetriesLeft = 0
		q.query.Exclude[0] = c.verdict.Endpoint
		g.metrics.retries.WithLabelValues(q.retried).Inc()
	}
}

// attemptThrough streams the request through one zone and accounts for it.
func (g *Gateway) attemptThrough(ctx context.Context, w http.ResponseWriter, r *http.Request, q *request, c choice) relay.Result {
	p := &passage{g: g, q: q, c: c}
	defer p.finish()
	hop := q.hop
	hop.Ticket = relay.Ticket{Parent: g.cfg.Name, Boot: g.boot, N: c.ticket}
	if hop.Deadline > 0 {
		hop.Deadline = max(hop.Deadline-time.Since(q.arrived), time.Millisecond)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.depart(p, cancel)
	req, err := relay.Onward(ctx, r, "https://"+c.verdict.Endpoint+q.path, q.kind, q.source.Open(), &hop)
	if err != nil {
		return relay.Result{Err: err}
	}
	if q.kind == relay.GRPC && hop.Deadline > 0 {
		req.Header.Set(grpcwire.HeaderTimeout, grpcwire.FormatTimeout(hop.Deadline))
	}
	var res relay.Result
	if q.kind == relay.WebSocket {
		res = g.through.Tunnel(ctx, w, req, p, relay.Bounds{Idle: g.cfg.TunnelIdle, Life: g.cfg.TunnelLife, Below: true})
	} else {
		res = g.through.Through(ctx, w, req, q.kind, p)
	}
	if res.Status == 0 && res.Retryable && !res.GivenUp() {
		g.suspect(c.verdict.Endpoint)
	}
	p.res = &res
	q.went(&res)
	return res
}

// went notes what went by in the attempt that a worker took.
func (q *request) went(res *relay.Result) {
	if !res.Started || res.Status/100 != 2 && res.Status != http.StatusSwitchingProtocols {
		return
	}
	q.passed = passed{taken: true, kind: kindName(q.kind), in: q.source.Total() + res.BytesIn, out: res.Bytes}
}

// endThrough accounts for a finished attempt and owes the client an answer when none began.
func (g *Gateway) endThrough(ctx context.Context, w http.ResponseWriter, q *request, c choice, res *relay.Result) {
	var e *openai.Error
	switch {
	case res.Started:
	case res.Denied != nil:
		e = res.Denied
	case res.Late:
		e = openai.DeadlineUnmeetable("regional")
	case q.source.Slow() != nil:
		e = q.source.Slow()
	case res.ClientGone:
	case res.Refused != nil && q.kind == relay.GRPC:
		e = res.Refused.Error()
	case res.Refused != nil:
		g.pass(w, q, res.Refused)
		g.logEnd(q, c, *res, res.Refused.Status)
		return
	default:
		e = openai.Upstream("the place that was chosen was lost before it answered")
	}
	if e != nil {
		g.logEnd(q, c, *res, e.Status)
		g.refuse(w, q, e)
		return
	}
	if res.Ended != "" {
		g.metrics.tunnels.WithLabelValues(res.Ended).Inc()
		res.ClientGone, res.Err = false, nil // whoever ended it, it was open until then
	}
	g.end(w, q, c, *res)
}

// kindNames are the kinds as metrics name them.
func kindName(k relay.Kind) string {
	switch k {
	case relay.GRPC:
		return "grpc"
	case relay.WebSocket:
		return "websocket"
	}
	return "usual"
}

// handshakeTimeout bounds TLS with a local.
const handshakeTimeout = 2 * time.Second

// throughTransport goes to the region's locals by the library's own HTTP/1.1, which streams both ways and upgrades. It
// does its own handshakes: the library would name no protocol in those of an upgrade, and our tiers insist on one.
func (g *Gateway) throughTransport() *http.Transport {
	cfg := g.cfg.Certs.Client(relay.ALPN, g.isLocal)
	t := relay.NewTransport(cfg)
	if g.cfg.Network != nil {
		t.DialContext = g.cfg.Network.DialContext
	}
	dial := t.DialContext
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, cfg)
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // it is the handshake's error that counts
			return nil, err
		}
		return c, nil
	}
	relay.TellEnds(t)
	return t
}

// throughMetrics count what passes unread.
type throughMetrics struct{ tunnels, through *prometheus.CounterVec }

func newThroughMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) throughMetrics {
	return throughMetrics{
		tunnels: counter("tunnels_total", "WebSockets that have ended, by what ended them: client, worker, idle, age or stopped.", "by"),
		through: counter("through_total", "Requests whose body is not read, by kind: grpc or websocket.", "kind"),
	}
}
