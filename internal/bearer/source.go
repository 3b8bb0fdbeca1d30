package bearer

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	maxKeySet  = 256 << 10
	maxKeys    = 64
	minRSABits = 2048

	// refresh is how often keys are fetched when nothing asks for it, again how soon after one that was asked for or that
	// failed.
	refresh = 15 * time.Minute
	again   = 10 * time.Second
)

// source is one issuer with its keys.
type source struct {
	issuer spec.Issuer
	keys   atomic.Pointer[[]jose.JSONWebKey]
	text   string // that the keys are from

	mu      sync.Mutex
	fetched time.Time // when it was last tried
	failed  bool
	wanted  bool
}

func newSource(i spec.Issuer) *source {
	s := &source{issuer: i}
	if i.JWKS != "" {
		if keys, err := ParseKeys([]byte(i.JWKS)); err == nil { // the spec was looked at when it was applied
			s.keys.Store(&keys)
		}
	}
	return s
}

// candidates are the keys that a token may be signed with.
func (s *source) candidates(id, algorithm string) (out []*jose.JSONWebKey) {
	keys := s.keys.Load()
	if keys == nil {
		return nil
	}
	for i := range *keys {
		k := &(*keys)[i]
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) && suits(k, algorithm) && len(out) < maxTried {
			out = append(out, k)
		}
	}
	return out
}

// suits says that a key is of the algorithm's kind.
func suits(k *jose.JSONWebKey, algorithm string) bool {
	switch k.Key.(type) {
	case *rsa.PublicKey:
		return algorithm[:2] == "RS" || algorithm[:2] == "PS"
	case *ecdsa.PublicKey:
		return algorithm[:2] == "ES"
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// want asks for a fetch; true when one is due soon that was not before.
func (s *source) want(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer.JWKSURL == "" || s.wanted {
		return false
	}
	s.wanted = true
	return true
}

// due is how long until the next fetch.
func (s *source) due(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.issuer.JWKSURL == "":
		return time.Hour
	case s.fetched.IsZero():
		return 0
	case s.failed || s.wanted:
		return again - now.Sub(s.fetched)
	}
	return refresh - now.Sub(s.fetched)
}

// tend fetches keys when it is time, and says when it is next.
func (s *source) tend(ctx context.Context, v *Verifier, now time.Time) time.Duration {
	if d := s.due(now); d > 0 {
		return d
	}
	s.mu.Lock()
	s.fetched, s.wanted = now, false
	s.mu.Unlock()
	err := s.fetch(ctx, v)
	s.mu.Lock()
	s.failed = err != nil
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		v.cfg.Count("fetch_failed")
		v.cfg.Log.Warn("an issuer's keys cannot be fetched, those before stay", "issuer", s.issuer.Issuer, telemetry.Err(err))
	}
	return s.due(time.Now())
}

func (s *source) fetch(ctx context.Context, v *Verifier) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.issuer.JWKSURL, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := v.cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil {
		return err
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return err
	}
	v.cfg.Count("fetched")
	if string(text) == s.text {
		return nil
	}
	s.text = string(text)
	s.keys.Store(&keys)
	s.remember(v, text)
	v.seen.clear() // what a key vouched for that is gone must not be taken any more
	return nil
}

// ParseKeys reads a key set. Keys that tokens are not verified with, or that are too weak, are left out; a set without any
// is an error.
func ParseKeys(text []byte) ([]jose.JSONWebKey, error) {
	if len(text) > maxKeySet {
		return nil, fmt.Errorf("the key set is longer than %d bytes", maxKeySet)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	var out []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !usable(&k) {
			continue
		}
		if out = append(out, k); len(out) == maxKeys {
			break
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the key set has no public key of RSA (2048 bits or more), ECDSA or Ed25519 for signatures")
	}
	return out, nil
}

func usable(k *jose.JSONWebKey) bool {
	if !k.Valid() || k.Use != "" && k.Use != "sig" {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits && key.N.BitLen() <= 8192
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false // private keys and shared secrets do not belong there
}
