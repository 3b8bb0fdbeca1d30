package jwtauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	maxKeySetBytes = 256 << 10
	maxKeys        = 64
	minRSABits     = 2048

	// refreshInterval is the regular interval between fetches of keys, retryInterval the shortest after a
	// requested or failed fetch.
	refreshInterval = 15 * time.Minute
	retryInterval   = 10 * time.Second
)

// issuerKeys is one issuer with its keys.
type issuerKeys struct {
	issuer     spec.TokenIssuer
	keys       atomic.Pointer[[]jose.JSONWebKey]
	keySetText string // source text of keys

	mu          sync.Mutex
	fetchedAt   time.Time // time of the last attempt
	fetchFailed bool
	fetchWanted bool
}

func newIssuerKeys(i spec.TokenIssuer) *issuerKeys {
	s := &issuerKeys{issuer: i}
	if i.JWKS != "" {
		if keys, err := ParseKeys([]byte(i.JWKS)); err == nil { // the spec was validated before
			s.keys.Store(&keys)
		}
	}
	return s
}

// candidateKeys returns the keys that may have signed a token.
func (s *issuerKeys) candidateKeys(id, algorithm string) (out []*jose.JSONWebKey) {
	keys := s.keys.Load()
	if keys == nil {
		return nil
	}
	for i := range *keys {
		k := &(*keys)[i]
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) && matchesAlgorithm(k, algorithm) && len(out) < maxKeysTried {
			out = append(out, k)
		}
	}
	return out
}

// matchesAlgorithm reports whether a key is of the algorithm's type.
func matchesAlgorithm(k *jose.JSONWebKey, algorithm string) bool {
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

// requestFetch requests a fetch. It returns true if one is newly due.
func (s *issuerKeys) requestFetch(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer.JWKSURL == "" || s.fetchWanted {
		return false
	}
	s.fetchWanted = true
	return true
}

// untilFetch returns the time until the next fetch.
func (s *issuerKeys) untilFetch(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.issuer.JWKSURL == "":
		return time.Hour
	case s.fetchedAt.IsZero():
		return 0
	case s.fetchFailed || s.fetchWanted:
		return retryInterval - now.Sub(s.fetchedAt)
	}
	return refreshInterval - now.Sub(s.fetchedAt)
}

// fetchIfDue fetches keys if due, and returns the time until the next fetch.
func (s *issuerKeys) fetchIfDue(ctx context.Context, v *Verifier, now time.Time) time.Duration {
	if d := s.untilFetch(now); d > 0 {
		return d
	}
	s.mu.Lock()
	s.fetchedAt, s.fetchWanted = now, false
	s.mu.Unlock()
	err := s.fetchKeys(ctx, v)
	s.mu.Lock()
	s.fetchFailed = err != nil
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		v.cfg.CountOutcome("fetch_failed")
		v.cfg.Log.Warn("an issuer's keys cannot be fetched, those before stay", "issuer", s.issuer.Issuer, telemetry.ErrorAttr(err))
	}
	return s.untilFetch(time.Now())
}

func (s *issuerKeys) fetchKeys(ctx context.Context, v *Verifier) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.issuer.JWKSURL, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := v.cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return err
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return err
	}
	v.cfg.CountOutcome("fetched")
	if string(text) == s.keySetText {
		return nil
	}
	s.keySetText = string(text)
	s.keys.Store(&keys)
	s.persistKeys(v, text)
	v.cache.clearAll() // tokens signed by removed keys must no longer be accepted
	return nil
}

// ParseKeys parses a key set. Keys that are not for verification or too weak are skipped; a set without usable
// keys is an error.
func ParseKeys(text []byte) ([]jose.JSONWebKey, error) {
	if len(text) > maxKeySetBytes {
		return nil, fmt.Errorf("the key set is longer than %d bytes", maxKeySetBytes)
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
		if k.UnmarshalJSON(raw) != nil || !isUsableKey(&k) {
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

func isUsableKey(k *jose.JSONWebKey) bool {
	if !k.Valid() || k.Use != "" && k.Use != "sig" {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits && key.N.BitLen() <= 8192
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false // private keys and shared secrets are refused
}

// keyFile returns the file with the persisted keys of a URL; empty if they are not persisted.
func (s *issuerKeys) keyFile(v *Verifier) string {
	if v.cfg.Dir == "" || s.issuer.JWKSURL == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.issuer.JWKSURL))
	return filepath.Join(v.cfg.Dir, "keys-"+hex.EncodeToString(sum[:8])+".json")
}

// persistKeys writes a key set atomically, so that a crash leaves the old or the new one.
func (s *issuerKeys) persistKeys(v *Verifier, text []byte) {
	name := s.keyFile(v)
	if name == "" {
		return
	}
	err := os.MkdirAll(v.cfg.Dir, 0o700)
	if err == nil {
		err = os.WriteFile(name+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		v.cfg.Log.Warn("an issuer's keys are not kept on disk: a restart while it is away would not know them", "issuer", s.issuer.Issuer, telemetry.ErrorAttr(err))
	}
}

// loadPersistedKeys loads the persisted key set, for use until the first fetch. An unreadable one is ignored.
func (s *issuerKeys) loadPersistedKeys(v *Verifier) {
	name := s.keyFile(v)
	if name == "" {
		return
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxKeySetBytes+1))
		_ = f.Close() // only read from
	}
	keys, bad := ParseKeys(text)
	if err = errors.Join(err, bad); err != nil {
		v.cfg.Log.Warn("the kept keys of an issuer cannot be read and are passed over", "issuer", s.issuer.Issuer, telemetry.ErrorAttr(err))
		return
	}
	s.keys.Store(&keys)
}
