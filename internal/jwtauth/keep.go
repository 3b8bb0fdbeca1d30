package jwtauth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

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
