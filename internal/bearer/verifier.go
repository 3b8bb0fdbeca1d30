package bearer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// MaxToken is the longest token that is looked at, in bytes.
const MaxToken = 8 << 10

// Why a token is refused. The messages are for the caller.
var (
	ErrMalformed = errors.New("the token cannot be read")
	ErrAlgorithm = errors.New("the token is signed by an algorithm that its issuer's entry does not allow")
	ErrIssuer    = errors.New("the token's issuer is not known here")
	ErrAudience  = errors.New("the token is meant for another audience")
	ErrExpired   = errors.New("the token has expired: get a new one")
	ErrEarly     = errors.New("the token is not valid yet: check the issuer's clock")
	ErrEndless   = errors.New("the token does not say when it expires")
	ErrKey       = errors.New("the token's key is not known here yet: try again in a few seconds")
	ErrSignature = errors.New("the token's signature is not its issuer's")
	ErrTenant    = errors.New("the token names no tenant that is known here")
)

// Caller is whose a token is.
type Caller struct {
	Tenant string
	// Class is the highest that the token allows.
	Class spec.Class
}

// Config of a Verifier.
type Config struct {
	// Client fetches keys; nil: one that follows no redirects and waits ten seconds.
	Client *http.Client
	// Count is told how each token was judged and each fetch ended: "cached", "verified", or a short word for why not.
	Count func(outcome string)
	Log   *slog.Logger
	// Dir keeps the keys that were fetched last, so that a node that starts while an issuer is away knows them. Empty: it
	// does not.
	Dir string
}

// Verifier judges tokens. Verify may be called concurrently with everything.
type Verifier struct {
	cfg     Config
	sources atomic.Pointer[[]*source]
	seen    *seen
	wake    chan struct{}
}

// New makes a Verifier that knows no issuers.
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
	if cfg.Count == nil {
		cfg.Count = func(string) {}
	}
	v := &Verifier{cfg: cfg, seen: newSeen(), wake: make(chan struct{}, 1)}
	v.sources.Store(&[]*source{})
	return v
}

// Adopt takes a spec's issuers. Those that have not changed keep their keys. It must not be called concurrently with itself.
func (v *Verifier) Adopt(issuers []spec.Issuer) {
	old := *v.sources.Load()
	next, same := make([]*source, len(issuers)), len(old) == len(issuers)
	for i := range issuers {
		for _, s := range old {
			if reflect.DeepEqual(s.issuer, issuers[i]) {
				next[i] = s
			}
		}
		if next[i] == nil {
			next[i], same = newSource(issuers[i]), false
			next[i].recall(v)
		}
	}
	if same {
		return
	}
	v.sources.Store(&next)
	v.seen.clear()
	v.poke()
}

// Verify says whose a token is at now. An error is one of the above.
func (v *Verifier) Verify(token string, now time.Time) (Caller, error) {
	c, err := v.verify(token, now)
	v.cfg.Count(outcome(c, err))
	return c.Caller, err
}

// Known reports whether a token was verified before and is remembered, so that Verify checks no signature.
func (v *Verifier) Known(token string) bool {
	if len(token) > MaxToken {
		return false
	}
	_, ok := v.seen.get(v.seen.id(token))
	return ok
}

func outcome(c verified, err error) string {
	for name, e := range map[string]error{
		"malformed": ErrMalformed, "algorithm": ErrAlgorithm, "issuer": ErrIssuer, "audience": ErrAudience, "expired": ErrExpired,
		"early": ErrEarly, "endless": ErrEndless, "key": ErrKey, "signature": ErrSignature, "tenant": ErrTenant,
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

func (v *Verifier) poke() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Run fetches keys until ctx ends.
func (v *Verifier) Run(ctx context.Context) {
	for {
		next := time.Hour
		for _, s := range *v.sources.Load() {
			next = min(next, s.tend(ctx, v, time.Now()))
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
