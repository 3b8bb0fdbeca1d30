package discover

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
)

const (
	maxTokens = 1024
	// Shorter tokens could be guessed and are not even compared. So guessing is hopeless at any rate, and a wrong
	// guess need not block a client at the same address with a valid token.
	minTokenBytes, maxTokenBytes = 16, 512
	tokenCheckInterval           = time.Second
)

// tokenSet holds the hashed tokens that workers may present.
type tokenSet struct {
	configured []tokenHash
	path       string
	log        *slog.Logger

	mu        sync.Mutex
	all       []tokenHash
	modTime   time.Time
	size      int64
	nextCheck time.Time // time of the next check of the file
}

func openTokenSet(r *config.Registration, log *slog.Logger) (*tokenSet, error) {
	t := &tokenSet{path: r.TokenFile, log: log}
	for _, s := range r.Tokens {
		o, err := parseToken(s)
		if err != nil {
			return nil, fmt.Errorf("registration.tokens: %w", err)
		}
		t.configured = append(t.configured, o)
	}
	t.all = t.configured
	if err := t.reloadFile(); err != nil {
		return nil, err
	}
	if len(t.all) == 0 {
		return nil, fmt.Errorf("registration has no token: put the hash that `spillway config key` prints into %s", t.path)
	}
	return t, nil
}

// matchToken returns the hash of a valid token. All hashes are compared, in constant time.
func (t *tokenSet) matchToken(token string, now time.Time) (tokenHash, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" && !now.Before(t.nextCheck) {
		t.nextCheck = now.Add(tokenCheckInterval)
		if st, err := os.Stat(t.path); err == nil && (st.ModTime() != t.modTime || st.Size() != t.size) {
			if err := t.readFileLocked(); err != nil {
				t.modTime, t.size = st.ModTime(), st.Size() // so that it is logged once
				t.log.Warn("token file refused, the last good one stays in force", "error", err)
			}
		}
	}
	if len(token) < minTokenBytes || len(token) > maxTokenBytes {
		return tokenHash{}, false
	}
	sum, found := tokenHash(sha256.Sum256([]byte(token))), 0
	for i := range t.all {
		found |= subtle.ConstantTimeCompare(sum[:], t.all[i][:])
	}
	return sum, found == 1
}

// hasHash reports whether an owner's token is still valid.
func (t *tokenSet) hasHash(o tokenHash) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := 0
	for i := range t.all {
		found |= subtle.ConstantTimeCompare(o[:], t.all[i][:])
	}
	return found == 1
}

func (t *tokenSet) reloadFile() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.readFileLocked()
}

func (t *tokenSet) readFileLocked() error {
	if t.path == "" {
		return nil
	}
	f, err := os.Open(t.path)
	if err != nil {
		return fmt.Errorf("reading the tokens (registration.token_file): %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the tokens: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the tokens: %w", err)
	}
	found, err := parseTokens(text)
	if err != nil {
		return fmt.Errorf("%s:%w", t.path, err)
	}
	t.all, t.modTime, t.size = append(found, t.configured...), st.ModTime(), st.Size()
	return nil
}

// parseTokens parses a token file: one hash a line; lines that begin with # and empty ones are skipped.
func parseTokens(text []byte) ([]tokenHash, error) {
	var out []tokenHash
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		o, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		if out = append(out, o); len(out) > maxTokens {
			return nil, fmt.Errorf("%d: more than %d tokens", n, maxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("0: %w", err)
	}
	return out, nil
}

// parseToken parses one hash. A refused text may be a plain token, so errors do not contain it.
func parseToken(s string) (o tokenHash, err error) {
	if !config.IsHashedToken(s) {
		return o, fmt.Errorf("not a hashed token: write what `spillway config key` prints, sha256: and 64 hex digits")
	}
	_, err = hex.Decode(o[:], []byte(strings.TrimPrefix(s, "sha256:")))
	return o, err
}

const (
	// failureBurst is how many failures an address may make at once; one more is allowed per refill interval.
	failureBurst  = 10
	failureRefill = 6 * time.Second
	// maxLimitedAddrs bounds the addresses that are tracked.
	maxLimitedAddrs = 4096
)

// failureLimiter limits the failures per address that get a full answer. IPv6 counts by /64, which one machine may
// own.
type failureLimiter struct {
	clearedAt map[netip.Prefix]time.Time // when all of its failures are forgiven
}

// allowFailure records a failure; false when the address has made too many.
func (p *failureLimiter) allowFailure(a netip.Addr, now time.Time) bool {
	key := addrGroup(a)
	if p.clearedAt == nil {
		p.clearedAt = map[netip.Prefix]time.Time{}
	}
	until, known := p.clearedAt[key]
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) >= failureBurst*failureRefill {
		return false
	}
	if !known && len(p.clearedAt) >= maxLimitedAddrs {
		for k, t := range p.clearedAt {
			if !t.After(now) {
				delete(p.clearedAt, k)
			}
		}
		if len(p.clearedAt) >= maxLimitedAddrs {
			return false
		}
	}
	p.clearedAt[key] = until.Add(failureRefill)
	return true
}

func addrGroup(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for an invalid address
	return p
}
