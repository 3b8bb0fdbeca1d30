package regional

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/ticket"
)

// maxTickets bounds the redirect tickets that a gateway remembers for a minute or two: about 6 MiB at the most. Beyond
// 1,000 redirected requests a second the oldest are forgotten early.
const maxTickets = 1 << 16

// followed is the redirects that were followed here.
type followed struct {
	mu   sync.Mutex
	seen *ticket.Seen
}

func newFollowed() *followed { return &followed{seen: ticket.NewSeen(maxTickets)} }

// first reports whether a ticket is presented here for the first time.
func (f *followed) first(t ticket.Ticket, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.First(t, now)
}

// ticketed is the tenant that a redirect's ticket vouches for: for this region, for the service that the call names, and
// once at this gateway. nil when it does not. client is who asked, when a global node passes the request on: a header that
// says so is not believed.
func (g *Gateway) ticketed(st *state, text, host string, now time.Time) (t *spec.Tenant, client netip.Addr) {
	tk, err := ticket.Open(st.directive.TicketKeys, text, now)
	if err != nil || tk.Region != g.cfg.Region {
		return nil, client
	}
	svc, t := st.service(host), st.spec.Tenant(tk.Tenant)
	if svc == nil || svc.Name != tk.Service || t == nil || !g.tickets.first(tk, now) {
		return nil, client
	}
	client, _ = netip.ParseAddr(tk.Client) // empty when the client comes itself
	return t, client
}

// badTicket tells all reasons alike: which it was is nobody's business but the operator's.
func badTicket() *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidAPIKey, NoRetry: true,
		Message: "the redirect's ticket is not good here: it holds for one call, one service, one region and 30 s; call the service's own name again",
	}
}
