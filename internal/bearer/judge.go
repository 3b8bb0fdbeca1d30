package bearer

import (
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/spillway-lb/spillway/internal/spec"
)

// maxTried bounds the keys that a token without a key id is tried with.
const maxTried = 4

// verified is a judged token.
type verified struct {
	Caller
	until  time.Time
	from   time.Time
	cached bool
}

func (v *Verifier) verify(text string, now time.Time) (verified, error) {
	if len(text) > MaxToken {
		return verified{}, ErrMalformed
	}
	id, round := v.seen.id(text), v.seen.round()
	if c, ok := v.seen.get(id); ok {
		c.cached = true
		return c, timely(c.from, c.until, now)
	}
	token, err := jwt.ParseSigned(text, everyAlgorithm())
	if err != nil {
		if errors.As(err, new(*jose.ErrUnexpectedSignatureAlgorithm)) {
			return verified{}, ErrAlgorithm
		}
		return verified{}, ErrMalformed
	}
	var said jwt.Claims
	if len(token.Headers) != 1 || token.UnsafeClaimsWithoutVerification(&said) != nil {
		return verified{}, ErrMalformed
	}
	s := v.sourceOf(said.Issuer)
	switch {
	case s == nil:
		return verified{}, ErrIssuer
	case !s.issuer.Allows(token.Headers[0].Algorithm):
		return verified{}, ErrAlgorithm
	}
	claims, err := v.check(s, token)
	if err != nil {
		return verified{}, err
	}
	c, err := s.judge(claims)
	if err == nil {
		err = timely(c.from, c.until, now)
	}
	if err != nil {
		return verified{}, err
	}
	v.seen.put(id, c, round)
	return c, nil
}

func (v *Verifier) sourceOf(issuer string) *source {
	for _, s := range *v.sources.Load() {
		if s.issuer.Issuer == issuer && issuer != "" {
			return s
		}
	}
	return nil
}

// claims are those of a token whose signature is right.
type claims struct {
	jwt.Claims
	all map[string]any
}

// check looks for the key and at the signature.
func (v *Verifier) check(s *source, token *jwt.JSONWebToken) (*claims, error) {
	keys := s.candidates(token.Headers[0].KeyID, token.Headers[0].Algorithm)
	if len(keys) == 0 {
		if s.want(time.Now()) {
			v.poke()
		}
		return nil, ErrKey
	}
	for i := range keys {
		var c claims
		if token.Claims(keys[i].Key, &c.Claims, &c.all) == nil {
			return &c, nil
		}
	}
	return nil, ErrSignature
}

// judge reads who is meant.
func (s *source) judge(c *claims) (out verified, err error) {
	switch {
	case c.Expiry == nil:
		return out, ErrEndless
	case !slices.ContainsFunc(s.issuer.Audience, c.Audience.Contains):
		return out, ErrAudience
	}
	leeway := time.Duration(s.issuer.Leeway)
	out.until = c.Expiry.Time().Add(leeway)
	if c.NotBefore != nil {
		out.from = c.NotBefore.Time().Add(-leeway)
	}
	if out.Tenant = s.tenant(c.all); out.Tenant == "" {
		return out, ErrTenant
	}
	if s.issuer.ClassClaim != "" {
		text, _ := c.all[s.issuer.ClassClaim].(string)
		if out.Class, err = spec.ParseClass(text); err != nil || text == "" {
			out.Class, err = spec.Batch, nil // it was to say, and does not: the least
		}
	}
	return out, nil
}

// tenant is whom the claims name.
func (s *source) tenant(all map[string]any) string {
	if s.issuer.Tenant != "" {
		return s.issuer.Tenant
	}
	name, _ := all[s.issuer.TenantClaim].(string)
	if len(s.issuer.Tenants) > 0 {
		return s.issuer.Tenants[name]
	}
	return name
}

func timely(from, until, now time.Time) error {
	switch {
	case !now.Before(until):
		return ErrExpired
	case now.Before(from):
		return ErrEarly
	}
	return nil
}

// everyAlgorithm is what any issuer may allow.
func everyAlgorithm() []jose.SignatureAlgorithm {
	var out []jose.SignatureAlgorithm
	for _, a := range spec.TokenAlgorithms() {
		out = append(out, jose.SignatureAlgorithm(a))
	}
	return out
}
