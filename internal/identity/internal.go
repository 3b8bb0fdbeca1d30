package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// processTrustDomain is the trust domain of certificates that one process makes for itself.
const processTrustDomain = "process.internal"

// NewProcessCerts makes an authority and a certificate for each id, for tiers that run inside one process. The trust domain of
// the ids is filled in. The keys are in no file when it returns, and the certificates are valid for as long as the process
// can run: there is nothing to reload.
func NewProcessCerts(ids ...ID) (out []*Certs, err error) {
	dir, err := os.MkdirTemp("", "spillway-certs-")
	if err != nil {
		return nil, fmt.Errorf("making certificates for this process: %w", err)
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
			return nil, fmt.Errorf("making certificates for this process: %w", err)
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
