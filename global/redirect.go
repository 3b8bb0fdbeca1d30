package global

import (
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
	// ticketLife is how long a redirect may be followed.
	ticketLife = time.Minute
	// keySettles is how long a new ticket key waits until gateways surely hold it.
	keySettles = 10 * time.Second
)

// redirect answers every call with a 307 to the child name of the region that suits the client, so that the body goes
// there and not through here.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	to, fail := s.locate(r, time.Now())
	if fail != nil {
		s.metrics.redirects.WithLabelValues(fail.Code).Inc()
		relay.WriteError(w, fail)
		return
	}
	s.metrics.redirects.WithLabelValues("redirected").Inc()
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (s *Server) locate(r *http.Request, now time.Time) (string, *openai.Error) {
	v := s.view.Load()
	switch {
	case !strings.HasPrefix(r.URL.Path, "/v1/"):
		return "", notFound("no such path: calls go to /v1/")
	case v == nil:
		return "", openai.NotReady()
	}
	service := v.serviceOf(r.Host)
	if service < 0 {
		return "", notFound("no service of that name here: check the host of the URL")
	}
	tenant, ok := v.spec.Authenticate(apiKey(r.Header))
	if !ok {
		return "", openai.InvalidAPIKey()
	}
	client := remote(r)
	region := v.pick(service, v.atlas.Locate(client).Cell, client, v.barred(tenant)).Region
	if region < 0 {
		return "", openai.Residency("no region of this service")
	}
	key := signingKey(v.state.TicketKeys, now)
	if key == nil {
		return "", openai.NotReady()
	}
	t := ticket.Mint(key, ticket.Ticket{
		Tenant: tenant.Name, Service: v.spec.Services[service].Name, Region: v.spec.Regions[region].Name,
		Expires: now.Add(ticketLife), Nonce: rand.Uint64(),
	})
	return v.location(service, region, r.URL, t), nil
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

// apiKey reads the key as OpenAI's and Anthropic's clients send it.
func apiKey(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	return h.Get("X-Api-Key")
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

// location is the same call at the region's child name of the service, with the ticket.
func (v *View) location(service, region int, u *url.URL, t string) string {
	svc, r := &v.spec.Services[service], &v.spec.Regions[region]
	scheme, port := front(r)
	if svc.RedirectPort > 0 {
		port = strconv.Itoa(svc.RedirectPort)
	}
	host := r.Name + "." + strings.TrimSuffix(svc.Name, ".")
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	var query []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if name, _, _ := strings.Cut(pair, "="); pair != "" && name != ticketParam {
			query = append(query, pair)
		}
	}
	query = append(query, ticketParam+"="+t)
	out := url.URL{Scheme: scheme, Host: host, Path: u.Path, RawPath: u.RawPath, RawQuery: strings.Join(query, "&")}
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
