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
	clientorigin "github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/tracing"
)

const (
	// ticketParam is the query parameter with the ticket in the Location: most clients drop Authorization when a
	// redirect leads to another host.
	ticketParam = "spw"
	// keySettleTime is how long a new ticket key waits before it signs, until all gateways have received it.
	keySettleTime = 10 * time.Second
)

// redirector answers requests at the redirect endpoint: with a redirect, a list of regions, or through the proxy.
type redirector struct {
	trusted       clientorigin.TrustedProxies
	snapshot      *currentSnapshot
	metrics       *nodeMetrics
	tokenVerifier *jwtauth.Verifier
	proxy         *requestProxy   // nil: nothing is proxied
	tracer        *tracing.Tracer // nil: no traces
}

// redirectCaller identifies the client and the service of a request.
type redirectCaller struct {
	snapshot *nodeSnapshot
	service  int
	tenant   *spec.Tenant
	client   netip.Addr
	trace    *redirectTrace // nil: it is not traced
}

// serveRedirect answers every GET and POST with a 307 to the child name of the client's region, so that the body goes
// directly there. The node does not wait for any byte of the body.
func (s *redirector) serveRedirect(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).EnableFullDuplex() // otherwise the server reads the body before it answers
	if r.URL.Path == routePath {
		s.serveRoute(w, r)
		return
	}
	trace := beginTrace(s.tracer, r)
	if s.proxy != nil && s.proxy.shouldProxy(r) {
		s.proxy.serveRequest(w, r, trace)
		return
	}
	to, fail := s.locateRegion(r, time.Now(), trace)
	defer trace.finishTrace(http.StatusTemporaryRedirect, fail)
	if fail != nil {
		s.metrics.redirects.WithLabelValues(fail.Code).Inc()
		forward.WriteError(w, fail)
		return
	}
	s.metrics.redirects.WithLabelValues("redirected").Inc()
	w.Header().Set("Location", to)
	w.Header().Set("Content-Length", "0") // lets the client separate the answer from the next one before it has sent its body
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (s *redirector) locateRegion(r *http.Request, now time.Time, trace *redirectTrace) (string, *openai.Error) {
	c, fail := s.identifyCaller(r)
	if fail != nil {
		return "", fail
	}
	v := c.snapshot
	if v.wasRedirected(r.URL, now) {
		return "", redirectLoopError(c)
	}
	choice := v.PickRegion(c.service, v.atlas.Locate(c.client).Cell, c.client, v.ExcludedRegions(c.tenant))
	region := choice.Region
	if region < 0 {
		return "", openai.ResidencyDenied("no region of this service")
	}
	key := signingKey(v.state.TicketKeys, now)
	if key == nil {
		return "", openai.NotReady()
	}
	trace.setRegion(c, region, choice.Reason.String())
	t := ticket.MintTicket(key, ticket.RedirectTicket{
		Tenant: c.tenant.Name, Service: v.Spec.Services[c.service].Name, Region: v.Spec.Regions[region].Name,
		Expires: now.Add(ticket.Lifetime), Nonce: rand.Uint64(),
	})
	return redirectURL(v, c.service, region, r.URL, t), nil
}

// identifyCaller identifies the client and the service from the request's head alone.
func (s *redirector) identifyCaller(r *http.Request) (*redirectCaller, *openai.Error) {
	v := s.snapshot.Load()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		return nil, badMethodError("GET or POST")
	case r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/"):
		return nil, notFoundError("not found: a path begins with a slash")
	case v == nil:
		return nil, openai.NotReady()
	}
	c := &redirectCaller{snapshot: v, service: serviceForHost(v, r.Host), client: s.clientAddr(r)}
	if c.service < 0 {
		return nil, notFoundError("unknown service: the host of the URL is not the name of a service; check it")
	}
	var ok bool
	if c.tenant, ok = v.Spec.AuthenticateKey(readAPIKey(r.Header), time.Now()); !ok {
		var e *openai.Error
		if c.tenant, e = s.verifyToken(v, readAPIKey(r.Header), time.Now()); e != nil {
			return nil, e
		}
	}
	return c, nil
}

// wasRedirected reports whether a request returned from one of our redirects with a ticket that is still valid.
func (v *nodeSnapshot) wasRedirected(u *url.URL, now time.Time) bool {
	text := u.Query().Get(ticketParam)
	if text == "" {
		return false
	}
	var keys [][]byte
	for i := range v.state.TicketKeys {
		keys = append(keys, v.state.TicketKeys[i].Secret)
	}
	_, err := ticket.OpenTicket(keys, text, now)
	return err == nil
}

// redirectLoopError ends a redirect loop.
func redirectLoopError(c *redirectCaller) *openai.Error {
	return &openai.Error{
		Status: http.StatusLoopDetected, Type: openai.TypeServer, Code: codeRedirectLoop, NoRetry: true,
		Message: "redirect loop: this request was redirected before and came back; the regions' names below " + c.snapshot.Spec.Services[c.service].Name +
			" must resolve to their gateways, not to global nodes",
	}
}

// codeRedirectLoop is the error code for a redirect that was not followed to a gateway.
const codeRedirectLoop = "redirect_loop"

func badMethodError(want string) *openai.Error {
	return &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true,
		Message: "use " + want + " here",
	}
}

func notFoundError(message string) *openai.Error {
	return &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, Message: message}
}

// serviceForHost returns the service of a Host header; a node with a single service accepts any.
func serviceForHost(v *nodeSnapshot, host string) int {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if i := v.ServiceIndex(host); i >= 0 {
		return i
	}
	if len(v.Spec.Services) == 1 {
		return 0
	}
	return -1
}

// readAPIKey reads the key from the headers that clients of OpenAI, Anthropic and Azure use.
func readAPIKey(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	if v := h.Get("X-Api-Key"); v != "" {
		return v
	}
	return h.Get("Api-Key")
}

// clientAddr returns the client's address from a trusted proxy's header or from the connection.
func (s *redirector) clientAddr(r *http.Request) netip.Addr {
	return s.trusted.ClientAddr(remoteAddr(r), r.Header)
}

// remoteAddr returns the client's address from the connection. Headers that claim another address are ignored.
func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// signingKey returns the newest key that every gateway has had time to receive, or the oldest key if all are new.
func signingKey(keys []consensus.TicketKey, now time.Time) []byte {
	for _, k := range keys {
		if now.Sub(k.At) > keySettleTime {
			return k.Secret
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return keys[len(keys)-1].Secret
}

// regionOrigin returns the region's child name of the service with the scheme and port of its gateways. Nothing in it
// comes from the client.
func regionOrigin(v *nodeSnapshot, service, region int) url.URL {
	svc, r := &v.Spec.Services[service], &v.Spec.Regions[region]
	scheme, port := regionSchemePort(r)
	if svc.RedirectPort > 0 {
		port = strconv.Itoa(svc.RedirectPort)
	}
	host := r.Name + "." + strings.TrimSuffix(svc.Name, ".")
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	return url.URL{Scheme: scheme, Host: host}
}

// redirectURL returns the same URL at the region's child name of the service, with the ticket.
func redirectURL(v *nodeSnapshot, service, region int, u *url.URL, t string) string {
	var query []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if name, _, _ := strings.Cut(pair, "="); pair != "" && name != ticketParam {
			query = append(query, escapeQuery(pair))
		}
	}
	query = append(query, ticketParam+"="+t)
	out := regionOrigin(v, service, region)
	out.Path, out.RawPath, out.RawQuery = u.Path, u.RawPath, strings.Join(query, "&")
	return out.String()
}

// escapeQuery escapes characters that are not allowed in a query (RFC 3986, section 3.4), above all '#', which would
// begin a fragment: a client does not send the fragment, and the ticket would be lost with it.
func escapeQuery(s string) string {
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

// regionSchemePort returns the scheme and port of the region's gateways.
func regionSchemePort(r *spec.Region) (scheme, port string) {
	for i := range r.Gateways {
		if u, err := url.Parse(r.Gateways[i].URL); err == nil && u.Host != "" {
			return u.Scheme, u.Port()
		}
	}
	return "https", ""
}

// maxPreferBytes bounds the part of a Prefer header that is read.
const maxPreferBytes = 1024

// hasPreference reports whether Prefer headers (RFC 7240) hold a preference of that name without a value. Unknown
// preferences are ignored, as the RFC requires.
func hasPreference(lines []string, want string) bool {
	for _, line := range lines {
		if len(line) > maxPreferBytes {
			continue
		}
		for line != "" {
			var item string
			item, line = cutUnquoted(line, ',')
			name, _ := cutUnquoted(item, ';') // parameters do not matter here
			if strings.EqualFold(strings.TrimSpace(name), want) {
				return true
			}
		}
	}
	return false
}

// cutUnquoted cuts at the first sep outside a quoted string.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// verifyToken returns the tenant of a JWT. A token that permits less than its tenant may do is not exchanged for a
// ticket, because a ticket grants all rights of the tenant: its client goes to a region by name, with the token.
func (s *redirector) verifyToken(v *nodeSnapshot, text string, now time.Time) (*spec.Tenant, *openai.Error) {
	if len(v.Spec.Issuers) == 0 || strings.Count(text, ".") != 2 {
		return nil, openai.InvalidAPIKey()
	}
	caller, err := s.tokenVerifier.VerifyToken(text, now)
	t := v.Spec.FindTenant(caller.Tenant)
	switch {
	case err != nil:
		return nil, invalidTokenError(err.Error())
	case t == nil:
		return nil, invalidTokenError(jwtauth.ErrUnknownTenant.Error())
	case caller.Class > t.Class:
		return nil, invalidTokenError("the token permits a lower class than its tenant's, and a redirect would grant the tenant's: send the request to a region's name")
	}
	return t, nil
}

func invalidTokenError(message string) *openai.Error {
	return &openai.Error{Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: true, Message: message}
}
