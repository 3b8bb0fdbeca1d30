package regional

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
	"github.com/spillway-lb/spillway/regional/zone"
)

// request is one request on its way through the gateway.
type request struct {
	arrived   time.Time
	admitted  time.Time
	state     *state
	tenant    *spec.Tenant
	service   string // empty when no service of the spec is meant
	model     *spec.Model
	query     zone.Query
	marks     marks
	hop       relay.Hop
	env       openai.Envelope
	raw       []byte // the body as it came; nil once it is let go of
	charge    relay.BodyCharge
	body      openai.Wording // as it goes on
	shape     openai.Shape   // of its path
	infer     bool           // no text is generated, or none that can be foreseen
	settled   bool           // the caller insists on the model
	path      string         // with the query that goes on
	lease     tenant.Lease
	leased    bool
	entered   bool // it counts as one of the tenant's requests under way
	peer      bool // it came from another region's gateway
	tokens    int  // what it used, once known
	usage     openai.Usage
	retried   string // why it was tried twice; empty when it was not
	spilled   bool   // its last try went to a peer
	inferPath string // with the model in it, escaped, as it came
	args      string // the query of its path that goes on
	client    netip.Addr
	kind      relay.Kind    // how it passes
	source    *relay.Replay // its body, where that is not read
	passed    passed        // what went by of it, where that is not read
	counted   bool          // among the outcomes
	stream    resumption
	print     uint64 // its fingerprint among those under which workers died
	trial     bool   // it is the one further attempt of such a request
	told      int    // deaths of workers under it, by the head of the last answer
	hedged    bool   // a connection to another place was made beside its own
	paid      bool   // its second try is taken out of the budget already
	abandoned bool   // its client left when a worker had begun the prompt, before the first byte
	progress  string // what was forwarded of it to the gateway that sent it; see forwards
}

// letGo lets go of the body, once its answer has begun and cannot go on elsewhere.
func (q *request) letGo() {
	if q.stream.seam != nil {
		return
	}
	q.raw, q.body, q.env.Prompt = nil, openai.Wording{}, nil
	q.charge.Release()
}

// passed is what is known of a call, a WebSocket or another body that is not read: all that its usage record can say where
// the protocol says nothing of tokens.
type passed struct {
	taken   bool   // a worker took it: there is a record, even if nothing went by
	kind    string // as metrics name it
	in, out int64  // bytes from the client and to it
}

// hostname is a Host header without its port.
func hostname(host string) string {
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

// withoutTicket is the path and query that go on: a ticket must not reach a worker's log.
func withoutTicket(u *url.URL) (path, redirect string) {
	rest := url.URL{Path: u.Path, RawQuery: u.RawQuery} // spelt anew: one way of writing a path goes on
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

// apiKey is the key that the caller sent, in one of the ways that OpenAI's and Azure's clients do.
func apiKey(h http.Header) string {
	if v := relay.First(h, "Authorization"); len(v) > 7 && strings.EqualFold(v[:7], "bearer ") {
		return strings.TrimSpace(v[7:])
	}
	if v := relay.First(h, "X-Api-Key"); v != "" {
		return v
	}
	return relay.First(h, "Api-Key")
}

// requestID is what the caller calls the request, if that can stand in a log, or a new id.
func requestID(h http.Header, fresh func() string) string {
	if id := relay.ClientRequestID(h); id != "" {
		return id
	}
	return fresh()
}
