package global

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/ticket"
)

const (
	// DefaultMaxProxiedRequests is the default bound on the requests that a node proxies at once.
	DefaultMaxProxiedRequests = 256
	// maxModelPeekBytes is the longest body that is read before forwarding in order to find the model. A longer body
	// is forwarded unread.
	maxModelPeekBytes = 16 << 10
	// bodyIdleTimeout bounds the wait for the next piece of a client's body, and answerIdleTimeout that for a piece of
	// an answer. The latter is long, because an answer that is not streamed is silent until its last token.
	bodyIdleTimeout, answerIdleTimeout = 30 * time.Second, 15 * time.Minute
	// maxProxyTime and maxAnswerBytes bound one request in total.
	maxProxyTime   = time.Hour
	maxAnswerBytes = 1 << 30
	// maxRegionAttempts bounds the regions that are tried for one request.
	maxRegionAttempts = 3
	// busyRetryAfter is the Retry-After of a request that is refused because all proxy slots are in use.
	busyRetryAfter = time.Second
	// errorWriteTimeout bounds the time for writing the error of a refused request.
	errorWriteTimeout = 30 * time.Second
)

// errTooLong ends answers beyond maxAnswerBytes.
var errTooLong = fmt.Errorf("%w: it takes more time or bytes than a global node passes on", forward.ErrGivenUp)

// requestProxy proxies requests to regions for clients that cannot follow a redirect. It is off unless a service's
// redirect_proxy turns it on. A request goes only where the redirect would lead and only as the tenant of the
// redirect's ticket: the name must be one of the spec's child names, and the address that of one of the region's
// gateways.
type requestProxy struct {
	s         *Server
	slots     chan struct{}
	forwarder *forward.Forwarder
	dialer    *net.Dialer
	outcomes  *prometheus.CounterVec
	retries   prometheus.Counter
}

func newRequestProxy(s *Server) *requestProxy {
	p := &requestProxy{
		s: s, slots: make(chan struct{}, cmp.Or(s.cfg.MaxProxiedRequests, DefaultMaxProxiedRequests)), dialer: forward.NewDialer(),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_proxied_total", Help: "Requests proxied for clients that cannot follow redirects, by outcome: served, client_gone, broken, or the error code.",
		}, []string{"outcome"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_proxied_retries_total", Help: "Proxied requests retried at the next region because no gateway of the first could be reached.",
		}),
	}
	clients := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.ProxyCA != nil {
		clients = s.cfg.ProxyCA.ClientConfig()
	}
	t := forward.NewTransport(clients)
	t.DialContext = p.dialGateway
	p.forwarder = &forward.Forwarder{Transport: forward.WithSingleSend(t), IdleTimeout: answerIdleTimeout}
	return p
}

// registerMetrics registers the proxy's metrics.
func (p *requestProxy) registerMetrics(reg prometheus.Registerer) {
	reg.MustRegister(p.outcomes, p.retries, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_proxied_in_flight", Help: "Proxied requests in flight.",
	}, func() float64 { return float64(len(p.slots)) }))
}

// dialGateway connects to a gateway of the region with that child name, at the addresses that the node's own DNS
// would answer.
func (p *requestProxy) dialGateway(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	v := p.s.snapshot.Load()
	if err != nil || v == nil {
		return nil, fmt.Errorf("%q is not an address of a region", addr)
	}
	id, ok := v.LookupService([]byte(host + "."))
	if !ok {
		return nil, fmt.Errorf("%q is not a name of the spec", host)
	}
	_, region := v.SplitNameID(id)
	if region < 0 {
		return nil, fmt.Errorf("%q is not a region's name", host)
	}
	addrs := v.Regions[region].Addrs
	errs := []error{errors.New("no gateway of the region accepts connections")}
	for i, from := range rand.Perm(len(addrs)) {
		if i == maxRegionAttempts {
			break
		}
		a := addrs[from]
		c, err := p.dialer.DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// shouldProxy reports whether to proxy a request: the service allows it and the client requests it.
func (p *requestProxy) shouldProxy(r *http.Request) bool {
	v := p.s.snapshot.Load()
	if v == nil || r.Method == http.MethodHead {
		return false
	}
	service := serviceForHost(v, r.Host)
	if service < 0 {
		return false
	}
	switch v.Spec.Services[service].RedirectProxy {
	case spec.ProxyAsked:
		return asksForProxy(r.Header)
	case spec.ProxyAlways:
		return !hasPreference(r.Header["Prefer"], "redirect")
	}
	return false
}

// asksForProxy reports whether a client requests proxying: by a Prefer header, or by being a client that refuses
// every redirect to another host.
func asksForProxy(h http.Header) bool {
	return hasPreference(h["Prefer"], "proxy") || refusesRedirects(h.Get("User-Agent")) && !hasPreference(h["Prefer"], "redirect")
}

// refusesRedirects recognizes openai-go from version 3 by its User-Agent, "OpenAI/Go 3.96.0": it returns an error for
// a redirect to another origin than its base URL.
func refusesRedirects(userAgent string) bool {
	version, ok := strings.CutPrefix(userAgent, "OpenAI/Go ")
	if !ok {
		return false
	}
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 3
}

// serveRequest proxies one request and counts its outcome.
func (p *requestProxy) serveRequest(w http.ResponseWriter, r *http.Request, trace *redirectTrace) {
	outcome, fail := p.proxyRequest(w, r, trace)
	defer trace.finishTrace(0, fail)
	if fail != nil {
		outcome = fail.Code
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(errorWriteTimeout)) // the server's own deadline may have passed
		forward.WriteError(w, fail)
	}
	p.outcomes.WithLabelValues(outcome).Inc()
	p.s.metrics.redirects.WithLabelValues("proxied").Inc()
	if outcome == outcomeBroken {
		forward.AbortHandler()
	}
}

// The outcomes that are not refusals.
const (
	outcomeServed     = "served"
	outcomeClientGone = "client_gone"
	outcomeBroken     = "broken"
)

func (p *requestProxy) proxyRequest(w http.ResponseWriter, r *http.Request, trace *redirectTrace) (outcome string, fail *openai.Error) {
	c, fail := p.s.redirects.identifyCaller(r)
	if fail != nil {
		return "", fail
	}
	c.trace = trace
	if c.snapshot.wasRedirected(r.URL, time.Now()) {
		return "", redirectLoopError(c)
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		return "", openai.NoCapacity("another request", busyRetryAfter)
	}
	up, model, fail := receiveBody(w, r, c.snapshot.Spec.Routing.MaxBody)
	if fail != nil {
		return "", fail
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), maxProxyTime, errTooLong)
	defer cancel()
	res, fail := p.attemptRegions(ctx, w, r, c, up, model)
	return p.concludeRequest(up, res, fail)
}

// attemptRegions tries the caller's regions in order until a connection succeeds.
func (p *requestProxy) attemptRegions(ctx context.Context, w http.ResponseWriter, r *http.Request, c *redirectCaller, up *upload, model string) (res forward.Result, fail *openai.Error) {
	regions := c.rankRegions(model)
	if len(regions) == 0 {
		return res, openai.ResidencyDenied("no region of this service")
	}
	for i := range regions[:min(len(regions), maxRegionAttempts)] {
		if i > 0 {
			p.retries.Inc()
		}
		region := c.snapshot.RegionIndex(regions[i].Region)
		if res, fail = p.attemptRegion(ctx, w, r, c, up, region); fail != nil {
			return res, fail
		}
		p.s.log.Debug("request passed on", telemetry.KeyRegion, regions[i].Region, "status", res.Status, telemetry.ErrorAttr(res.Err))
		if !res.Outcome.MayRetry() || up.hasBegun() || ctx.Err() != nil {
			break
		}
	}
	return res, nil
}

// attemptRegion sends the request to one region, with a ticket for that region.
func (p *requestProxy) attemptRegion(ctx context.Context, w http.ResponseWriter, r *http.Request, c *redirectCaller, up *upload, region int) (res forward.Result, fail *openai.Error) {
	v, now := c.snapshot, time.Now()
	key := signingKey(v.state.TicketKeys, now)
	if key == nil {
		return res, openai.NotReady()
	}
	t := ticket.MintTicket(key, ticket.RedirectTicket{
		Tenant: c.tenant.Name, Service: v.Spec.Services[c.service].Name, Region: v.Spec.Regions[region].Name,
		Expires: now.Add(ticket.Lifetime), Nonce: rand.Uint64(), Client: c.client.String(),
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := forward.NewPassthroughRequest(ctx, r, redirectURL(v, c.service, region, r.URL, t), up.bodyReader(), up.length)
	if err != nil {
		return res, badMethodError("GET or POST")
	}
	req.Header.Set("X-Forwarded-For", c.client.String()) // the client's own header is not forwarded
	asked := hasPreference(r.Header["Prefer"], "proxy")
	attempt := c.trace.newAttempt(req.Header)
	res = p.forwarder.Forward(ctx, w, req, &proxyObserver{bytesLeft: maxAnswerBytes, cancel: cancel, proxyPreferred: asked})
	c.trace.addAttempt(attempt, v.Spec.Regions[region].Name, &res)
	return res, nil
}

// concludeRequest returns the outcome of a request, and the error for the client if no region answered. After it,
// only the server itself reads the client's body, see forward.GuardHandler.
func (p *requestProxy) concludeRequest(up *upload, res forward.Result, fail *openai.Error) (string, *openai.Error) {
	cause := up.stopReading()
	switch {
	case fail != nil:
	case res.Outcome == forward.BrokenOff:
		return outcomeBroken, nil
	case res.Outcome.IsClientGone() && (res.ReachedClient || res.Status == 0):
		return outcomeClientGone, nil
	case res.ReachedClient && res.Err != nil:
		return "truncated", nil
	case res.ReachedClient:
		return outcomeServed, nil
	case cause != nil:
		fail = cause
	case res.Refusal != nil:
		fail = openai.NoCapacity("another request", busyRetryAfter)
	default:
		fail = openai.UpstreamFailed("no region could be reached")
	}
	return "", fail
}

// proxyObserver observes the answer of a proxied request.
type proxyObserver struct {
	bytesLeft      int64
	cancel         context.CancelCauseFunc
	proxyPreferred bool
}

// EditHead adds Preference-Applied if the client's preference was honoured (RFC 7240, section 3).
func (o *proxyObserver) EditHead(_ *http.Response, out http.Header) {
	if o.proxyPreferred {
		out.Set("Preference-Applied", "proxy")
	}
	out.Add("Vary", "Prefer")
}

// AddChunk bounds the size of the answer.
func (o *proxyObserver) AddChunk(b []byte) {
	if o.bytesLeft -= int64(len(b)); o.bytesLeft < 0 {
		o.cancel(errTooLong)
	}
}

// closeIdleConns closes idle connections.
func (p *requestProxy) closeIdleConns() {
	p.forwarder.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// readModel returns the model that a small body names; empty if it names none or cannot be parsed.
func readModel(r *http.Request, body []byte) string {
	if model, ok := openai.ModelFromPath(r.URL.EscapedPath()); ok {
		return model
	}
	var env openai.Envelope
	if len(body) == 0 || openai.ScanChat(body, &env) != nil {
		return ""
	}
	return env.Model
}
