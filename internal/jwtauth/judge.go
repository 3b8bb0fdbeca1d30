package jwtauth

import (
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/spillway-lb/spillway/internal/spec"
)

// maxKeysTried bounds the keys tried for a token without a key id.
const maxKeysTried = 4

// verifiedToken is the result of a verified token.
type verifiedToken struct {
	TokenCaller
	validUntil time.Time
	validFrom  time.Time
	cached     bool
}

func (v *Verifier) verifyUncounted(text string, now time.Time) (verifiedToken, error) {
	if len(text) > MaxTokenBytes {
		return verifiedToken{}, ErrMalformed
	}
	id, round := v.cache.hashToken(text), v.cache.currentGeneration()
	if c, ok := v.cache.getToken(id); ok {
		c.cached = true
		return c, checkValidity(c.validFrom, c.validUntil, now)
	}
	token, err := jwt.ParseSigned(text, allAlgorithms())
	if err != nil {
		if errors.As(err, new(*jose.ErrUnexpectedSignatureAlgorithm)) {
			return verifiedToken{}, ErrAlgorithmNotAllowed
		}
		return verifiedToken{}, ErrMalformed
	}
	var said jwt.Claims
	if len(token.Headers) != 1 || token.UnsafeClaimsWithoutVerification(&said) != nil {
		return verifiedToken{}, ErrMalformed
	}
	s := v.findIssuer(said.Issuer)
	switch {
	case s == nil:
		return verifiedToken{}, ErrUnknownIssuer
	case !s.issuer.AllowsAlgorithm(token.Headers[0].Algorithm):
		return verifiedToken{}, ErrAlgorithmNotAllowed
	}
	claims, err := v.checkSignature(s, token)
	if err != nil {
		return verifiedToken{}, err
	}
	c, err := s.readClaims(claims)
	if err == nil {
		err = checkValidity(c.validFrom, c.validUntil, now)
	}
	if err != nil {
		return verifiedToken{}, err
	}
	v.cache.putToken(id, c, round)
	return c, nil
}

func (v *Verifier) findIssuer(issuer string) *issuerKeys {
	for _, s := range *v.issuers.Load() {
		if s.issuer.Issuer == issuer && issuer != "" {
			return s
		}
	}
	return nil
}

// tokenClaims are the claims of a token with a valid signature.
type tokenClaims struct {
	jwt.Claims
	all map[string]any
}

// checkSignature finds the key and checks the signature.
func (v *Verifier) checkSignature(s *issuerKeys, token *jwt.JSONWebToken) (*tokenClaims, error) {
	keys := s.candidateKeys(token.Headers[0].KeyID, token.Headers[0].Algorithm)
	if len(keys) == 0 {
		if s.requestFetch(time.Now()) {
			v.wakeFetcher()
		}
		return nil, ErrUnknownKey
	}
	for i := range keys {
		var c tokenClaims
		if token.Claims(keys[i].Key, &c.Claims, &c.all) == nil {
			return &c, nil
		}
	}
	return nil, ErrInvalidSignature
}

// readClaims determines the caller from the claims.
func (s *issuerKeys) readClaims(c *tokenClaims) (out verifiedToken, err error) {
	switch {
	case c.Expiry == nil:
		return out, ErrNoExpiry
	case !slices.ContainsFunc(s.issuer.Audience, c.Audience.Contains):
		return out, ErrWrongAudience
	}
	leeway := time.Duration(s.issuer.Leeway)
	out.validUntil = c.Expiry.Time().Add(leeway)
	if c.NotBefore != nil {
		out.validFrom = c.NotBefore.Time().Add(-leeway)
	}
	if out.Tenant = s.tenantFromClaims(c.all); out.Tenant == "" {
		return out, ErrUnknownTenant
	}
	if s.issuer.ClassClaim != "" {
		text, _ := c.all[s.issuer.ClassClaim].(string)
		if out.Class, err = spec.ParseClass(text); err != nil || text == "" {
			out.Class, err = spec.Batch, nil // the claim is configured and missing: the lowest class
		}
	}
	return out, nil
}

// tenantFromClaims returns the tenant named by the claims.
func (s *issuerKeys) tenantFromClaims(all map[string]any) string {
	if s.issuer.Tenant != "" {
		return s.issuer.Tenant
	}
	name, _ := all[s.issuer.TenantClaim].(string)
	if len(s.issuer.Tenants) > 0 {
		return s.issuer.Tenants[name]
	}
	return name
}

func checkValidity(from, until, now time.Time) error {
	switch {
	case !now.Before(until):
		return ErrExpired
	case now.Before(from):
		return ErrNotYetValid
	}
	return nil
}

// allAlgorithms returns the algorithms that an issuer may allow.
func allAlgorithms() []jose.SignatureAlgorithm {
	var out []jose.SignatureAlgorithm
	for _, a := range spec.TokenAlgorithms() {
		out = append(out, jose.SignatureAlgorithm(a))
	}
	return out
}
