package global

import (
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
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

// cookieSecretCache caches the derived DNS cookie secrets.
type cookieSecretCache struct {
	newestAt time.Time
	keyCount int
	settled  bool
	secrets  []dns.CookieSecret
}

// secretsFor returns the secrets. It derives them again only if the keys have changed or the newest key has settled.
func (c *cookieSecretCache) secretsFor(keys []consensus.TicketKey, now time.Time) []dns.CookieSecret {
	if len(keys) == 0 {
		return nil
	}
	settled := now.Sub(keys[0].At) > keySettleTime
	if !keys[0].At.Equal(c.newestAt) || len(keys) != c.keyCount || settled != c.settled {
		*c = cookieSecretCache{newestAt: keys[0].At, keyCount: len(keys), settled: settled, secrets: deriveCookieSecrets(keys, now)}
	}
	return c.secrets
}
