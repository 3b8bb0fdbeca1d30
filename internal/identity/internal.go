package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// internalDomain is the trust domain of certificates that one process makes for itself.
const internalDomain = "process.internal"

// Internal makes an authority and a certificate for each id, for tiers that run inside one process. The trust domain of
// the ids is filled in. The keys are in no file when it returns, and the certificates are valid for as long as the process
// can run: there is nothing to reload.
func Internal(ids ...ID) (out []*Certs, err error) {
	dir, err := os.MkdirTemp("", "spillway-certs-")
	if err != nil {
		return nil, fmt.Errorf("making certificates for this process: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca, err := NewDevCA(dir, internalDomain)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		id.TrustDomain = internalDomain
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, fmt.Errorf("making certificates for this process: %w", err)
		}
		files, err := ca.Issue(id, own, caTTL)
		if err != nil {
			return nil, err
		}
		c, err := Load(files, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		c.files, c.stamp = Files{}, [3]stamp{}
		out = append(out, c)
	}
	return out, nil
}
