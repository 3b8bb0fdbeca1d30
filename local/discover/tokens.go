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
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
)

const (
	maxTokens = 1024
	// A token that could be guessed is no token: shorter ones are not even compared, so that guessing is hopeless at any
	// rate and a wrong guess need not lock out who comes from the same address with the right one.
	minToken, maxToken = 16, 512
	tokensEvery        = time.Second
)

// tokens are the hashed tokens that workers may show.
type tokens struct {
	fixed []owner
	path  string
	log   *slog.Logger

	mu   sync.Mutex
	all  []owner
	mod  time.Time
	size int64
	due  time.Time // next look at the file
}

func openTokens(r *config.Registration, log *slog.Logger) (*tokens, error) {
	t := &tokens{path: r.TokenFile, log: log}
	for _, s := range r.Tokens {
		o, err := parseToken(s)
		if err != nil {
			return nil, fmt.Errorf("registration.tokens: %w", err)
		}
		t.fixed = append(t.fixed, o)
	}
	t.all = t.fixed
	if err := t.reload(); err != nil {
		return nil, err
	}
	if len(t.all) == 0 {
		return nil, fmt.Errorf("registration has no token: put the hash that `spillway config key` prints into %s", t.path)
	}
	return t, nil
}

// owner is whose token it is. Every hash is compared, in constant time.
func (t *tokens) owner(token string, now time.Time) (owner, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" && !now.Before(t.due) {
		t.due = now.Add(tokensEvery)
		if st, err := os.Stat(t.path); err == nil && (st.ModTime() != t.mod || st.Size() != t.size) {
			if err := t.read(); err != nil {
				t.mod, t.size = st.ModTime(), st.Size() // logged once
				t.log.Warn("token file refused, the last good one stays in force", "error", err)
			}
		}
	}
	if len(token) < minToken || len(token) > maxToken {
		return owner{}, false
	}
	sum, found := owner(sha256.Sum256([]byte(token))), 0
	for i := range t.all {
		found |= subtle.ConstantTimeCompare(sum[:], t.all[i][:])
	}
	return sum, found == 1
}

// knows says whether an owner's token is still one.
func (t *tokens) knows(o owner) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := 0
	for i := range t.all {
		found |= subtle.ConstantTimeCompare(o[:], t.all[i][:])
	}
	return found == 1
}

func (t *tokens) reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read()
}

func (t *tokens) read() error {
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
	t.all, t.mod, t.size = append(found, t.fixed...), st.ModTime(), st.Size()
	return nil
}

// parseTokens reads a token file: one hash a line, lines that begin with # and empty ones aside.
func parseTokens(text []byte) ([]owner, error) {
	var out []owner
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

// parseToken reads one hash. What it refuses may be a token in plain, so that errors do not show it.
func parseToken(s string) (o owner, err error) {
	if !config.HashedToken(s) {
		return o, fmt.Errorf("this is no hashed token: put in what `spillway config key` prints, sha256: and 64 hex digits")
	}
	_, err = hex.Decode(o[:], []byte(strings.TrimPrefix(s, "sha256:")))
	return o, err
}
