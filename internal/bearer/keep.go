package bearer

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

// file is where the keys of a URL are kept; empty when they are not.
func (s *source) file(v *Verifier) string {
	if v.cfg.Dir == "" || s.issuer.JWKSURL == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.issuer.JWKSURL))
	return filepath.Join(v.cfg.Dir, "keys-"+hex.EncodeToString(sum[:8])+".json")
}

// remember keeps a key set, so that a crash leaves the old one or the new one.
func (s *source) remember(v *Verifier, text []byte) {
	name := s.file(v)
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
		v.cfg.Log.Warn("an issuer's keys are not kept on disk: a restart while it is away would not know them", "issuer", s.issuer.Issuer, telemetry.Err(err))
	}
}

// recall takes the key set that was kept, until the issuer is heard. One that cannot be read is passed over.
func (s *source) recall(v *Verifier) {
	name := s.file(v)
	if name == "" {
		return
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxKeySet+1))
		_ = f.Close() // it was only read
	}
	keys, bad := ParseKeys(text)
	if err = errors.Join(err, bad); err != nil {
		v.cfg.Log.Warn("the kept keys of an issuer cannot be read and are passed over", "issuer", s.issuer.Issuer, telemetry.Err(err))
		return
	}
	s.keys.Store(&keys)
}
