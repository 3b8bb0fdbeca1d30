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

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/ticket"
)

const (
	// DefaultMaxProxied is how many requests a node passes on at once where nothing else is said.
	DefaultMaxProxied = 256
	// maxPeek is how much of a body is read before it goes on, to learn the model: a longer one is passed on unread.
	maxPeek = 16 << 10
	// bodySilence bounds the wait for the next piece of a client's body, and answerSilence for that of an answer: long,
	// since an answer that is not streamed is silent until its last token.
	bodySilence, answerSilence = 30 * time.Second, 15 * time.Minute
	// maxPassage and maxAnswer bound one request in all.
	maxPassage = time.Hour
	maxAnswer  = 1 << 30
	// maxTries is how many regions are tried for one request.
	maxTries = 3
	// busyRetry is when a client that found no room here may come again.
	busyRetry = time.Second
	// lastWord is how long the end of a refused request may take.
	lastWord = 30 * time.Second
)

// errTooLong ends what would go on for ever.
var errTooLong = fmt.Errorf("%w: it is longer than this node passes on", relay.ErrGivenUp)

// proxy passes requests on to regions for clients that cannot follow a redirect. It is off unless a service's
// redirect_proxy turns it on. It goes where a redirect would lead, as whom the redirect's ticket names, and nowhere else:
// the name must be one of the spec's child names, and the address one of the region's gateways.
type proxy struct {
	s       *Server
	room    chan struct{}
	relay   *relay.Forwarder
	dialer  *net.Dialer
	total   *prometheus.CounterVec
	retries prometheus.Counter
}

func newProxy(s *Server) *proxy {
	p := &proxy{
		s: s, room: make(chan struct{}, cmp.Or(s.cfg.MaxProxied, DefaultMaxProxied)), dialer: relay.NewDialer(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_proxied_total", Help: "Requests passed on for clients that cannot follow a redirect, by outcome: served, client_gone, broken, or the code of the refusal.",
		}, []string{"outcome"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_global_proxied_retries_total", Help: "Proxied requests that went to the next region, because none of one's gateways could be connected to.",
		}),
	}
	clients := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.ProxyCA != nil {
		clients = s.cfg.ProxyCA.ClientConfig()
	}
	t := relay.NewTransport(clients)
	t.DialContext = p.dial
	p.relay = &relay.Forwarder{Transport: t, IdleTimeout: answerSilence}
	return p
}

// register adds what the proxy counts.
func (p *proxy) register(reg prometheus.Registerer) {
	reg.MustRegister(p.total, p.retries, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_global_proxied_in_flight", Help: "Requests that are being passed on.",
	}, func() float64 { return float64(len(p.room)) }))
}

// dial connects to a gateway of the region whose child name it is asked for, as the node's own DNS would answer.
func (p *proxy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	v := p.s.view.Load()
	if err != nil || v == nil {
		return nil, fmt.Errorf("%q is no address of a region", addr)
	}
	id, ok := v.Lookup([]byte(host + "."))
	if !ok {
		return nil, fmt.Errorf("%q is not a name of the spec", host)
	}
	_, region := v.parts(id)
	if region < 0 {
		return nil, fmt.Errorf("%q is not a region's name", host)
	}
	addrs := v.regions[region].addrs
	errs := []error{errors.New("no gateway could be connected to")}
	for i, from := range rand.Perm(len(addrs)) {
		if i == maxTries {
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

// wanted says whether a call is to be passed on: what the service allows, and what the client asks for.
func (p *proxy) wanted(r *http.Request) bool {
	v := p.s.view.Load()
	if v == nil || r.Method == http.MethodHead {
		return false
	}
	service := v.serviceOf(r.Host)
	if service < 0 {
		return false
	}
	switch v.spec.Services[service].RedirectProxy {
	case spec.ProxyAsked:
		return asksForProxy(r.Header)
	case spec.ProxyAlways:
		return !prefers(r.Header["Prefer"], "redirect")
	}
	return false
}

// asksForProxy reports whether a client asks to be passed on: by Prefer, or by being one that refuses every redirect to
// another host.
func asksForProxy(h http.Header) bool {
	return prefers(h["Prefer"], "proxy") || refusesRedirects(h.Get("User-Agent")) && !prefers(h["Prefer"], "redirect")
}

// refusesRedirects recognizes openai-go from version 3 by its User-Agent, "OpenAI/Go 3.96.0": it returns an error for a
// redirect to another origin than its base URL.
func refusesRedirects(userAgent string) bool {
	version, ok := strings.CutPrefix(userAgent, "OpenAI/Go ")
	if !ok {
		return false
	}
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 3
}

// serve passes one request on and counts what became of it.
func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	outcome, fail := p.pass(w, r)
	if fail != nil {
		outcome = fail.Code
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWord)) // the server's own may have passed
		relay.WriteError(w, fail)
	}
	p.total.WithLabelValues(outcome).Inc()
	p.s.metrics.redirects.WithLabelValues("proxied").Inc()
	if outcome == outcomeBroken {
		relay.Abort()
	}
}

// The outcomes that are no refusals.
const (
	outcomeServed = "served"
	outcomeGone   = "client_gone"
	outcomeBroken = "broken"
)

func (p *proxy) pass(w http.ResponseWriter, r *http.Request) (outcome string, fail *openai.Error) {
	c, fail := p.s.caller(r)
	if fail != nil {
		return "", fail
	}
	if c.view.redirected(r.URL, time.Now()) {
		return "", looping(c)
	}
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
	default:
		return "", openai.NoCapacity("another request", busyRetry)
	}
	up, model, fail := receive(w, r, c.view.spec.Routing.MaxBody)
	if fail != nil {
		return "", fail
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), maxPassage, errTooLong)
	defer cancel()
	res, fail := p.tries(ctx, w, r, c, up, model)
	return p.end(up, res, fail)
}

// tries goes through the caller's regions until one can be connected to.
func (p *proxy) tries(ctx context.Context, w http.ResponseWriter, r *http.Request, c *caller, up *upload, model string) (res relay.Result, fail *openai.Error) {
	regions := c.ordered(model)
	if len(regions) == 0 {
		return res, openai.Residency("no region of this service")
	}
	for i := range regions[:min(len(regions), maxTries)] {
		if i > 0 {
			p.retries.Inc()
		}
		region := c.view.region(regions[i].Region)
		if res, fail = p.try(ctx, w, r, c, up, region); fail != nil {
			return res, fail
		}
		p.s.log.Debug("request passed on", telemetry.KeyRegion, regions[i].Region, "status", res.Status, telemetry.Err(res.Err))
		if !res.Retryable || up.begun() || ctx.Err() != nil {
			break
		}
	}
	return res, nil
}

// try sends the request to one region, under a ticket of its own.
func (p *proxy) try(ctx context.Context, w http.ResponseWriter, r *http.Request, c *caller, up *upload, region int) (res relay.Result, fail *openai.Error) {
	v, now := c.view, time.Now()
	key := signingKey(v.state.TicketKeys, now)
	if key == nil {
		return res, openai.NotReady()
	}
	t := ticket.Mint(key, ticket.Ticket{
		Tenant: c.tenant.Name, Service: v.spec.Services[c.service].Name, Region: v.spec.Regions[region].Name,
		Expires: now.Add(ticket.Life), Nonce: rand.Uint64(), Client: c.client.String(),
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := relay.Through(ctx, r, v.location(c.service, region, r.URL, t), up.body(), up.length)
	if err != nil {
		return res, badMethod("GET or POST")
	}
	req.Header.Set("X-Forwarded-For", c.client.String()) // what the client says of itself is not passed on
	asked := prefers(r.Header["Prefer"], "proxy")
	return p.relay.Forward(ctx, w, req, &passage{left: maxAnswer, cancel: cancel, asked: asked}), nil
}

// end says what became of a request, and what the client is told when nobody has answered. From here on nothing reads the
// client's body but the server itself, see relay.Guard.
func (p *proxy) end(up *upload, res relay.Result, fail *openai.Error) (string, *openai.Error) {
	cause := up.stop()
	switch {
	case fail != nil:
	case res.Started && res.Truncated && !res.Events:
		return outcomeBroken, nil
	case res.Started && res.ClientGone, res.Status == 0 && res.ClientGone:
		return outcomeGone, nil
	case res.Started && res.Err != nil:
		return "truncated", nil
	case res.Started:
		return outcomeServed, nil
	case cause != nil:
		fail = cause
	case res.Refused != nil:
		fail = openai.NoCapacity("another request", busyRetry)
	default:
		fail = openai.Upstream("no region could be reached")
	}
	return "", fail
}

// passage watches an answer pass.
type passage struct {
	left   int64
	cancel context.CancelCauseFunc
	asked  bool
}

// Head says that what the client preferred was done (RFC 7240, 3).
func (o *passage) Head(_ *http.Response, out http.Header) {
	if o.asked {
		out.Set("Preference-Applied", "proxy")
	}
	out.Add("Vary", "Prefer")
}

// Chunk bounds the answer.
func (o *passage) Chunk(b []byte) {
	if o.left -= int64(len(b)); o.left < 0 {
		o.cancel(errTooLong)
	}
}

// close drops idle connections.
func (p *proxy) close() { p.relay.Transport.(*http.Transport).CloseIdleConnections() }

// readModel is the model that a small body names; empty when it names none that can be read.
func readModel(r *http.Request, body []byte) string {
	if model, ok := openai.InferModel(r.URL.EscapedPath()); ok {
		return model
	}
	var env openai.Envelope
	if len(body) == 0 || openai.Scan(body, &env) != nil {
		return ""
	}
	return env.Model
}
