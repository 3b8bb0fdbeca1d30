package global

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/ticket"
)

const (
	// ticketParam carries the ticket in the Location: most clients drop Authorization on the way to another host.
	ticketParam = "spw"
	// keySettles is how long a new ticket key waits until gateways surely hold it.
	keySettles = 10 * time.Second
)

// caller is who asks for which service.
type caller struct {
	view    *View
	service int
	tenant  *spec.Tenant
	client  netip.Addr
}

// redirect answers every GET and POST with a 307 to the child name of the region that suits the client, so that the body
// goes there and not through here: not a byte of it is waited for.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).EnableFullDuplex() // else the server reads the body before it answers
	if r.URL.Path == pathRoute {
		s.route(w, r)
		return
	}
	if s.proxy != nil && s.proxy.wanted(r) {
		s.proxy.serve(w, r)
		return
	}
	to, fail := s.locate(r, time.Now())
	if fail != nil {
		s.metrics.redirects.WithLabelValues(fail.Code).Inc()
		relay.WriteError(w, fail)
		return
	}
	s.metrics.redirects.WithLabelValues("redirected").Inc()
	w.Header().Set("Location", to)
	w.Header().Set("Content-Length", "0") // it can be told from what follows before the body is read
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (s *Server) locate(r *http.Request, now time.Time) (string, *openai.Error) {
	c, fail := s.caller(r)
	if fail != nil {
		return "", fail
	}
	v := c.view
	if v.redirected(r.URL, now) {
		return "", looping(c)
	}
	region := v.pick(c.service, v.atlas.Locate(c.client).Cell, c.client, v.barred(c.tenant)).Region
	if region < 0 {
		return "", openai.Residency("no region of this service")
	}
	key := signingKey(v.state.TicketKeys, now)
	if key == nil {
		return "", openai.NotReady()
	}
	t := ticket.Mint(key, ticket.Ticket{
		Tenant: c.tenant.Name, Service: v.spec.Services[c.service].Name, Region: v.spec.Regions[region].Name,
		Expires: now.Add(ticket.Life), Nonce: rand.Uint64(),
	})
	return v.location(c.service, region, r.URL, t), nil
}

// caller reads who asks for what, from the head of the request alone.
func (s *Server) caller(r *http.Request) (*caller, *openai.Error) {
	v := s.view.Load()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		return nil, badMethod("GET or POST")
	case r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/"):
		return nil, notFound("no such path: it begins with a slash")
	case v == nil:
		return nil, openai.NotReady()
	}
	c := &caller{view: v, service: v.serviceOf(r.Host), client: s.client(r)}
	if c.service < 0 {
		return nil, notFound("no service of that name here: check the host of the URL")
	}
	var ok bool
	if c.tenant, ok = v.spec.Authenticate(apiKey(r.Header), time.Now()); !ok {
		var e *openai.Error
		if c.tenant, e = s.token(v, apiKey(r.Header), time.Now()); e != nil {
			return nil, e
		}
	}
	return c, nil
}

// redirected reports whether a call has come back from a redirect of ours that is still good.
func (v *View) redirected(u *url.URL, now time.Time) bool {
	text := u.Query().Get(ticketParam)
	if text == "" {
		return false
	}
	var keys [][]byte
	for i := range v.state.TicketKeys {
		keys = append(keys, v.state.TicketKeys[i].Secret)
	}
	_, err := ticket.Open(keys, text, now)
	return err == nil
}

// looping ends what would else go round in circles.
func looping(c *caller) *openai.Error {
	return &openai.Error{
		Status: http.StatusLoopDetected, Type: openai.TypeServer, Code: codeLoop, NoRetry: true,
		Message: "this call was redirected already and came back: the regions' names below " + c.view.spec.Services[c.service].Name +
			" must lead to their gateways, not here",
	}
}

// codeLoop is the stable word for a redirect that was not followed to a gateway.
const codeLoop = "redirect_loop"

func badMethod(want string) *openai.Error {
	return &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "use " + want + " here",
	}
}

func notFound(message string) *openai.Error {
	return &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, Message: message}
}

// serviceOf is the service that a Host names; a node with a single service needs no name.
func (v *View) serviceOf(host string) int {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if i := v.service(host); i >= 0 {
		return i
	}
	if len(v.spec.Services) == 1 {
		return 0
	}
	return -1
}

// apiKey reads the key as the clients of OpenAI, Anthropic and Azure send it.
func apiKey(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	if v := h.Get("X-Api-Key"); v != "" {
		return v
	}
	return h.Get("Api-Key")
}

// client is the client's address, as a trusted proxy states it or as the connection has it.
func (s *Server) client(r *http.Request) netip.Addr {
	return s.cfg.Trusted.Client(remote(r), r.Header)
}

// remote is the client's address as the connection has it: headers that claim another are not believed.
func remote(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// signingKey is the newest key that every gateway has had time to learn, or the oldest when all are new.
func signingKey(keys []consensus.Key, now time.Time) []byte {
	for _, k := range keys {
		if now.Sub(k.At) > keySettles {
			return k.Secret
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return keys[len(keys)-1].Secret
}

// origin is the region's child name of the service, with the scheme and port of its front door. Nothing in it comes from
// the caller.
func (v *View) origin(service, region int) url.URL {
	svc, r := &v.spec.Services[service], &v.spec.Regions[region]
	scheme, port := front(r)
	if svc.RedirectPort > 0 {
		port = strconv.Itoa(svc.RedirectPort)
	}
	host := r.Name + "." + strings.TrimSuffix(svc.Name, ".")
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	return url.URL{Scheme: scheme, Host: host}
}

// location is the same call at the region's child name of the service, with the ticket.
func (v *View) location(service, region int, u *url.URL, t string) string {
	var query []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if name, _, _ := strings.Cut(pair, "="); pair != "" && name != ticketParam {
			query = append(query, visible(pair))
		}
	}
	query = append(query, ticketParam+"="+t)
	out := v.origin(service, region)
	out.Path, out.RawPath, out.RawQuery = u.Path, u.RawPath, strings.Join(query, "&")
	return out.String()
}

// visible escapes what may not stand in a query (RFC 3986, 3.4), above all what would begin a fragment: a client would
// keep what follows to itself, and that is the ticket.
func visible(s string) string {
	const hidden = "\"#<>\\^`{|}"
	if !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(hidden, r) }) {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(hidden, c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// front is the scheme and port of the region's front door.
func front(r *spec.Region) (scheme, port string) {
	for i := range r.Gateways {
		if u, err := url.Parse(r.Gateways[i].URL); err == nil && u.Host != "" {
			return u.Scheme, u.Port()
		}
	}
	return "https", ""
}
