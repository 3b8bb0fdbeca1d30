package regional

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/ticket"
)

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
