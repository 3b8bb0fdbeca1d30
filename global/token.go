package global

import (
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/bearer"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// token is the tenant whom a JWT stands for. One that allows less than its tenant may do is not exchanged for a ticket, which
// vouches for the tenant: its bearer goes to a region by name, with the token.
func (s *Server) token(v *View, text string, now time.Time) (*spec.Tenant, *openai.Error) {
	if len(v.spec.Issuers) == 0 || strings.Count(text, ".") != 2 {
		return nil, openai.InvalidAPIKey()
	}
	caller, err := s.tokens.Verify(text, now)
	t := v.spec.Tenant(caller.Tenant)
	switch {
	case err != nil:
		return nil, badToken(err.Error())
	case t == nil:
		return nil, badToken(bearer.ErrTenant.Error())
	case caller.Class > t.Class:
		return nil, badToken("the token allows a lower class than its tenant's, which a redirect cannot carry: call a region by its name")
	}
	return t, nil
}

func badToken(message string) *openai.Error {
	return &openai.Error{Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: true, Message: message}
}
