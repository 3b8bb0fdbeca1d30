// Package jwtauth verifies JSON Web Tokens (RFC 7519) of the issuers in the spec, against key sets (RFC 7517)
// that it fetches in the background. Verifier is its main type.
//
// A request never waits for a fetch: a token is verified with the keys at hand. An unknown key triggers a
// fetch, at most every ten seconds, and the request is refused meanwhile. If a fetch fails the old keys stay.
// Verified tokens are cached by hash until they expire, so that each signature is checked once; when the keys
// of an issuer change, the cache is cleared.
//
// Algorithms are those allowed by the issuer's entry, all with public keys: "none" and those with shared
// secrets cannot be allowed. URLs come only from the spec, never from a token, and redirects are not followed.
// The package uses go-jose for signatures and keys: a new implementation of those would be the kind of mistake
// that it must prevent.
//
// It determines the tenant of a token; authorization is decided elsewhere. It never logs a token or a claim.
package jwtauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// MaxTokenBytes is the longest accepted token, in bytes.
const MaxTokenBytes = 8 << 10

// Reasons for refusing a token. The messages are for the client.
var (
	ErrMalformed           = errors.New("the token cannot be read")
	ErrAlgorithmNotAllowed = errors.New("the token is signed by an algorithm that its issuer's entry does not allow")
	ErrUnknownIssuer       = errors.New("the token's issuer is not known here")
	ErrWrongAudience       = errors.New("the token is meant for another audience")
	ErrExpired             = errors.New("the token has expired: get a new one")
	ErrNotYetValid         = errors.New("the token is not valid yet: check the issuer's clock")
	ErrNoExpiry            = errors.New("the token does not say when it expires")
	ErrUnknownKey          = errors.New("the token's key is not known here yet: try again in a few seconds")
	ErrInvalidSignature    = errors.New("the token's signature is not its issuer's")
	ErrUnknownTenant       = errors.New("the token names no tenant that is known here")
)

// TokenCaller is the identity of a token.
type TokenCaller struct {
	Tenant string
	// Class is the highest class that the token allows.
	Class spec.Class
}

// Config configures a Verifier.
type Config struct {
	// Client fetches keys; nil: one that follows no redirects and has a timeout of 10 s.
	Client *http.Client
	// CountOutcome is called with the result of each token and of each fetch: "cached", "verified", or a short
	// reason for the failure.
	CountOutcome func(outcome string)
	Log          *slog.Logger
	// Dir is where fetched keys are persisted, for a node that starts while an issuer is unreachable. Empty:
	// not persisted.
	Dir string
}

// Verifier verifies tokens. VerifyToken may be called concurrently with all methods.
type Verifier struct {
	cfg     Config
	issuers atomic.Pointer[[]*issuerKeys]
	cache   *tokenCache
	wake    chan struct{}
}

// New creates a Verifier without issuers.
func New(cfg Config) *Verifier {
	if cfg.Client == nil {
		cfg.Client = &http.Client{
			Timeout:       10 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.CountOutcome == nil {
		cfg.CountOutcome = func(string) {}
	}
	v := &Verifier{cfg: cfg, cache: newTokenCache(), wake: make(chan struct{}, 1)}
	v.issuers.Store(&[]*issuerKeys{})
	return v
}

// SetIssuers sets the issuers of a spec. Unchanged ones keep their keys. It must not be called concurrently
// with itself.
func (v *Verifier) SetIssuers(issuers []spec.TokenIssuer) {
	old := *v.issuers.Load()
	next, same := make([]*issuerKeys, len(issuers)), len(old) == len(issuers)
	for i := range issuers {
		for _, s := range old {
			if reflect.DeepEqual(s.issuer, issuers[i]) {
				next[i] = s
			}
		}
		if next[i] == nil {
			next[i], same = newIssuerKeys(issuers[i]), false
			next[i].loadPersistedKeys(v)
		}
	}
	if same {
		return
	}
	v.issuers.Store(&next)
	v.cache.clearAll()
	v.wakeFetcher()
}

// VerifyToken returns the identity of a token at now, or one of the errors above.
func (v *Verifier) VerifyToken(token string, now time.Time) (TokenCaller, error) {
	c, err := v.verifyUncounted(token, now)
	v.cfg.CountOutcome(outcomeLabel(c, err))
	return c.TokenCaller, err
}

// IsCached reports whether a token is in the cache, so that VerifyToken checks no signature.
func (v *Verifier) IsCached(token string) bool {
	if len(token) > MaxTokenBytes {
		return false
	}
	_, ok := v.cache.getToken(v.cache.hashToken(token))
	return ok
}

func outcomeLabel(c verifiedToken, err error) string {
	for name, e := range map[string]error{
		"malformed": ErrMalformed, "algorithm": ErrAlgorithmNotAllowed, "issuer": ErrUnknownIssuer, "audience": ErrWrongAudience, "expired": ErrExpired,
		"early": ErrNotYetValid, "endless": ErrNoExpiry, "key": ErrUnknownKey, "signature": ErrInvalidSignature, "tenant": ErrUnknownTenant,
	} {
		if errors.Is(err, e) {
			return name
		}
	}
	if c.cached {
		return "cached"
	}
	return "verified"
}

func (v *Verifier) wakeFetcher() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// RunFetcher fetches keys until ctx ends.
func (v *Verifier) RunFetcher(ctx context.Context) {
	for {
		next := time.Hour
		for _, s := range *v.issuers.Load() {
			next = min(next, s.fetchIfDue(ctx, v, time.Now()))
		}
		t := time.NewTimer(max(next, 10*time.Millisecond))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-v.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// maxCachedTokens bounds the cached tokens: about 2 MiB. Beyond it the older half is dropped.
const maxCachedTokens = 1 << 14

// tokenCache holds the verified tokens by hash, in two generations by age.
type tokenCache struct {
	mu         sync.Mutex
	recent     map[[sha256.Size]byte]verifiedToken
	older      map[[sha256.Size]byte]verifiedToken
	generation uint64
	halfSize   int
}

func newTokenCache() *tokenCache {
	return &tokenCache{recent: map[[sha256.Size]byte]verifiedToken{}, halfSize: maxCachedTokens / 2}
}

func (s *tokenCache) hashToken(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// currentGeneration returns the generation of a result, which clearAll increments.
func (s *tokenCache) currentGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

func (s *tokenCache) getToken(id [sha256.Size]byte) (verifiedToken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.recent[id]; ok {
		return c, true
	}
	c, ok := s.older[id]
	if ok {
		s.storeToken(id, c)
	}
	return c, ok
}

// putToken caches a result, unless the cache was cleared since, because the keys have changed.
func (s *tokenCache) putToken(id [sha256.Size]byte, c verifiedToken, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if round == s.generation {
		s.storeToken(id, c)
	}
}

func (s *tokenCache) storeToken(id [sha256.Size]byte, c verifiedToken) {
	if len(s.recent) >= s.halfSize {
		s.recent, s.older = map[[sha256.Size]byte]verifiedToken{}, s.recent
	}
	s.recent[id] = c
}

func (s *tokenCache) clearAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent, s.older = map[[sha256.Size]byte]verifiedToken{}, nil
	s.generation++
}
