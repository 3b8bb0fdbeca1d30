package regional

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/regional/routing"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// gatewayRequest is one request in the gateway.
type gatewayRequest struct {
	arrived           time.Time
	admitted          time.Time
	policy            *gatewayPolicy
	tenant            *spec.Tenant
	service           string // empty when the request is for no service in particular
	model             *spec.Model
	query             routing.RouteQuery
	promptKeys        promptKeys
	hop               forward.Hop
	env               openai.Envelope
	raw               []byte // the original body; nil once released
	charge            forward.BodyCharge
	body              openai.EditedBody // the body as forwarded
	shape             openai.Shape      // of the path
	noGeneratedText   bool              // generates no text, or an unpredictable amount
	modelPinned       bool              // the client requires exactly this model
	path              string            // with the query, as forwarded
	lease             tenant.Reservation
	hasLease          bool
	holdsConcurrency  bool // counts against the tenant's concurrency limit
	fromPeer          bool // sent by another region's gateway
	totalTokens       int  // used tokens, once known
	usage             openai.TokenUsage
	attempts          int    // made so far
	retryCause        string // why it was retried; empty without a retry
	spilled           bool   // the last attempt went to a peer
	inferPath         string // contains the model, escaped, as received
	pathQuery         string // the part of the query that is forwarded
	client            netip.Addr
	kind              forward.Kind        // how it is forwarded
	replay            *forward.ReplayBody // its body, if the gateway does not parse it
	passthrough       passthroughUsage    // what was transferred, if the gateway does not parse it
	outcomeCounted    bool                // it is counted in the outcomes
	resumption        resumption
	fingerprint       uint64 // fingerprint in workerDeaths
	suspectAttempt    bool   // the single further attempt of a suspect
	reportedDeaths    int    // worker deaths by the head of the last response
	hedged            bool   // switched to the connection of another endpoint
	retryBudgetTaken  bool   // its retry is already taken from the budget
	abandoned         bool   // the client disconnected before the first byte, when a worker had started the prompt
	forwardedProgress string // progress forwarded to the gateway that spilled it; see advanceProgress
	access            accessNote
	trace             *tracing.RequestTrace // nil: it is not traced
}

// releaseBody releases the body once the response has begun and cannot be continued elsewhere.
func (q *gatewayRequest) releaseBody() {
	if q.resumption.splicer != nil {
		return
	}
	q.raw, q.body, q.env.Prompt = nil, openai.EditedBody{}, nil
	q.charge.ReleaseBytes()
}

// passthroughUsage is what is known of a gRPC call, a WebSocket or another unparsed body: all that its usage
// record contains where the protocol reports no tokens.
type passthroughUsage struct {
	accepted          bool   // a worker accepted it: there is a record, even without bytes
	kind              string // its name in metrics
	bytesIn, bytesOut int64  // bytes from the client and to the client
}

// stripPort returns a Host header without its port.
func stripPort(host string) string {
	if strings.IndexByte(host, ':') < 0 {
		return host
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// ticketParam carries a redirect ticket in the query.
const ticketParam = "spw"

// splitTicket returns the path and query to forward, and the ticket, which must not reach a worker's log.
func splitTicket(u *url.URL) (path, redirect string) {
	rest := url.URL{Path: u.Path, RawQuery: u.RawQuery} // re-encoded, so that a path is forwarded in one spelling only
	if u.RawQuery == "" {
		return rest.RequestURI(), ""
	}
	q := u.Query()
	if q.Has(ticketParam) {
		redirect = q.Get(ticketParam)
		q.Del(ticketParam)
		rest.RawQuery = q.Encode()
	}
	return rest.RequestURI(), redirect
}

// apiKey returns the key in the request, sent in one of the ways of OpenAI's and Azure's clients.
func apiKey(h http.Header) string {
	if v := forward.FirstValue(h, "Authorization"); len(v) > 7 && strings.EqualFold(v[:7], "bearer ") {
		return strings.TrimSpace(v[7:])
	}
	if v := forward.FirstValue(h, "X-Api-Key"); v != "" {
		return v
	}
	return forward.FirstValue(h, "Api-Key")
}

// requestID returns the client's own request id if it is safe to log, or a new id.
func requestID(h http.Header, fresh func() string) string {
	if id := forward.ClientRequestID(h); id != "" {
		return id
	}
	return fresh()
}

// sentTokens returns the estimated prompt tokens. A streamed body counts as text of the length that the client has
// sent so far, like an inference request over HTTP.
func (q *gatewayRequest) sentTokens() int {
	if q.kind == forward.Buffered {
		return q.query.PromptTokens
	}
	return max(q.query.PromptTokens, int(float64(q.replay.BytesRead())/q.model.BytesPerToken))
}

// isClientRequest reports whether outcomes count the request: only a client's request, not one that a peer's
// gateway accounts for.
func (q *gatewayRequest) isClientRequest() bool { return q != nil && !q.fromPeer && q.policy.isReady() }

func (q *gatewayRequest) outcomeKey() outcomeKey {
	key := outcomeKey{service: q.service}
	if q.model != nil {
		key.model = q.model.Name
	}
	return key
}

// assignPool sets the worker pool of the request for its current model.
func (q *gatewayRequest) assignPool() {
	q.query.Pool, q.query.Overflow = "", false
	if p, _ := modelroute.FindPool(q.policy.spec, q.tenant.Name, q.query.Model, q.query.Class); p != nil {
		q.query.Pool, q.query.Overflow = p.Name, p.Overflow
	}
}

// switchToHedge reports whether another zone's connection was established first, so that the request goes there.
// Nothing was sent yet, so this spends no retry.
func (q *gatewayRequest) switchToHedge(d *routing.RouteDecision, res *forward.Result) bool {
	if q.hedged || !isConnectedElsewhere(res.Err) {
		return false
	}
	q.hedged = true
	q.query.ExcludeEndpoint(d.Endpoint)
	return true
}

// advanceProgress reports whether progress is forwarded to the gateway that spilled the request. Each step is
// forwarded once, in order, because transports bound the interim responses of a request.
func (q *gatewayRequest) advanceProgress(progress string) bool {
	if progress == q.forwardedProgress || q.forwardedProgress == forward.ProgressStarted || q.forwardedProgress == "" && progress != forward.ProgressQueued {
		return false
	}
	q.forwardedProgress = progress
	return true
}
