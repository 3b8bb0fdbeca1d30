package global

import (
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

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
		return nil, invalidTokenError("the token allows a lower class than its tenant's, which a redirect cannot carry: call a region by its name")
	}
	return t, nil
}

func invalidTokenError(message string) *openai.Error {
	return &openai.Error{Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: true, Message: message}
}
