package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// processTrustDomain is the trust domain of the certificates that NewProcessCerts makes.
const processTrustDomain = "process.internal"

// NewProcessCerts creates an authority and a certificate for each id, for tiers that run in one process. It sets the
// trust domain of the ids. The keys are only in memory, and the certificates are valid for longer than the process
// runs, so there is nothing to reload.
func NewProcessCerts(ids ...ID) (out []*Certs, err error) {
	dir, err := os.MkdirTemp("", "spillway-certs-")
	if err != nil {
		return nil, fmt.Errorf("creating certificates for this process: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca, err := NewDevCA(dir, processTrustDomain)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		id.TrustDomain = processTrustDomain
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, fmt.Errorf("creating certificates for this process: %w", err)
		}
		files, err := ca.IssueCert(id, own, devCATTL)
		if err != nil {
			return nil, err
		}
		c, err := LoadCerts(files, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		c.files, c.stamp = CertFiles{}, [3]fileStamp{}
		out = append(out, c)
	}
	return out, nil
}
