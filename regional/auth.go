package regional

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/ticket"
)

// authenticator identifies clients by API keys, tokens and redirect tickets.
type authenticator struct {
	region   string
	trusted  clientip.TrustedProxies
	verifier *jwtauth.Verifier
	refusals refusalLimiter
	redeemed *redeemedTickets
}

// authenticateClient identifies the client by an API key, a token, or the ticket of a redirect.
func (a *authenticator) authenticateClient(r *http.Request, st *gatewayPolicy) (t *spec.Tenant, path string, client netip.Addr, e *openai.Error) {
	path, redirect := splitTicket(r.URL)
	if st.keylessTenant != nil {
		return st.keylessTenant, path, a.clientAddr(r), nil
	}
	if t, ok := st.spec.AuthenticateKey(apiKey(r.Header), time.Now()); ok {
		return t, path, a.clientAddr(r), nil
	}
	now, from := time.Now(), a.clientAddr(r)
	if a.refusals.isExhausted(from, now) && (redirect != "" || !a.verifier.IsCached(apiKey(r.Header))) {
		return nil, "", from, openai.ClientRefusals()
	}
	t, e = a.tenantFromToken(st, r, now)
	switch {
	case t != nil:
		return t, path, from, nil
	case e != nil:
		a.refusals.addRefusal(from, now)
	}
	if redirect != "" {
		if t, client := a.tenantFromTicket(st, redirect, r.Host, now); t != nil {
			if !client.IsValid() {
				client = from
			}
			return t, path, client, nil
		}
		a.refusals.addRefusal(from, now)
		return nil, "", client, ticketError()
	}
	if e == nil {
		e = openai.InvalidAPIKey()
	}
	return nil, "", client, e
}

// clientAddr returns the client's address: that of the connection or, behind trusted proxies, the one that they
// report. The address is invalid when it is unknown.
func (a *authenticator) clientAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.trusted.ClientAddr(ap.Addr().Unmap(), r.Header).Unmap()
}

// tenantFromToken returns the tenant of a JWT, with the class that the token allows. nil without an error: there
// is no JWT.
func (a *authenticator) tenantFromToken(st *gatewayPolicy, r *http.Request, now time.Time) (*spec.Tenant, *openai.Error) {
	text := apiKey(r.Header)
	if len(st.spec.Issuers) == 0 || strings.Count(text, ".") != 2 {
		return nil, nil
	}
	caller, err := a.verifier.VerifyToken(text, now)
	if err != nil {
		return nil, tokenError(err)
	}
	t := st.spec.FindTenant(caller.Tenant)
	if t == nil {
		return nil, tokenError(jwtauth.ErrUnknownTenant)
	}
	if caller.Class > t.Class {
		lower := *t
		lower.Class = caller.Class
		return &lower, nil
	}
	return t, nil
}

// tenantFromTicket returns the tenant that a redirect ticket authenticates: for this region, for the service in
// the Host, and once at this gateway. Otherwise it returns nil. client is the client's address when a global node
// proxies the request; a header with an address is not trusted.
func (a *authenticator) tenantFromTicket(st *gatewayPolicy, text, host string, now time.Time) (t *spec.Tenant, client netip.Addr) {
	tk, err := ticket.OpenTicket(st.directive.TicketKeys, text, now)
	if err != nil || tk.Region != a.region {
		return nil, client
	}
	svc, t := st.serviceForHost(host), st.spec.FindTenant(tk.Tenant)
	if svc == nil || svc.Name != tk.Service || t == nil || !a.redeemed.redeemOnce(tk, now) {
		return nil, client
	}
	client, _ = netip.ParseAddr(tk.Client) // empty when the client connects itself
	return t, client
}

// maxTickets bounds the redirect tickets that a gateway keeps for one or two minutes: about 6 MiB. Above 1,000
// redirected requests/s the oldest are evicted early.
const maxTickets = 1 << 16

// redeemedTickets holds the redirect tickets already used here.
type redeemedTickets struct {
	mu   sync.Mutex
	seen *ticket.SeenTickets
}

func newRedeemedTickets() *redeemedTickets {
	return &redeemedTickets{seen: ticket.NewSeenTickets(maxTickets)}
}

// redeemOnce reports whether a ticket is presented here for the first time.
func (f *redeemedTickets) redeemOnce(t ticket.RedirectTicket, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.MarkSeen(t, now)
}

// ticketError is the same for all reasons: only the operator may learn which one applies.
func ticketError() *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidAPIKey, NoRetry: true,
		Message: "the redirect's ticket is not good here: it holds for one call, one service, one region and 30 s; call the service's own name again",
	}
}

// tokenError returns what is wrong with a token. This reveals nothing, because the token's content is readable by
// its holder.
func tokenError(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: !errors.Is(err, jwtauth.ErrUnknownKey),
		Message: err.Error(),
	}
}
