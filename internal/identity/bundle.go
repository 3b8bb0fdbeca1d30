package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
)

// CertFiles are the PEM files of one node: its certificate chain, leaf first; its private key; the authorities that it
// trusts.
type CertFiles struct {
	Cert string
	Key  string
	CA   string
}

// maxPEMBytes bounds each file. Real certificate chains are far smaller.
const maxPEMBytes = 1 << 20

// certBundle is the content of the three files at one moment. It is immutable.
type certBundle struct {
	cert  tls.Certificate
	roots *x509.CertPool
	id    ID

	caExpires time.Time         // of the first authority to expire
	rootCert  *x509.Certificate // the authority that cert chains to
}

// readBundle reads and checks the files: the key matches the certificate, the certificate chains to the authority, is
// valid at now, and contains one identity. With these checks a node whose certificate every peer would refuse fails at
// its start.
func readBundle(f CertFiles, now time.Time) (*certBundle, error) {
	certPEM, err := readPEM(f.Cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readPEM(f.Key)
	if err != nil {
		return nil, err
	}
	caPEM, err := readPEM(f.CA)
	if err != nil {
		return nil, err
	}
	b := &certBundle{roots: x509.NewCertPool()}
	if b.cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("reading certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	if !b.roots.AppendCertsFromPEM(caPEM) {
		return nil, fmt.Errorf("reading authority %s: the file has no PEM certificate", f.CA)
	}
	if b.caExpires, err = certfile.EarliestExpiry(caPEM); err != nil {
		return nil, fmt.Errorf("reading authority %s: %w", f.CA, err)
	}
	if b.id, err = leafID(b.cert.Leaf); err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", f.Cert, err)
	}
	if err := b.verifyChains(now); err != nil {
		return nil, fmt.Errorf("checking certificate %s against authority %s: %w", f.Cert, f.CA, err)
	}
	return b, nil
}

// verifyChains verifies the node's own certificate for both directions: every node dials and listens with the same one.
func (b *certBundle) verifyChains(now time.Time) error {
	inter := x509.NewCertPool()
	for _, der := range b.cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("reading intermediate: %w", err)
		}
		inter.AddCert(c)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		chains, err := b.cert.Leaf.Verify(x509.VerifyOptions{
			Roots: b.roots, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
		})
		if err != nil {
			return err
		}
		if chain := chains[0]; b.rootCert == nil {
			b.rootCert = chain[len(chain)-1]
		}
	}
	return nil
}

func readPEM(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("no certificate files are configured: set cert, key and ca (`spillway certs dev` creates them)")
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxPEMBytes {
		return nil, fmt.Errorf("reading certificates: %s is not a regular file of at most %d bytes", path, maxPEMBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	return text, nil
}
