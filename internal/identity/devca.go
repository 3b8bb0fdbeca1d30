package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	devCATTL  = 10 * 365 * 24 * time.Hour
	clockSkew = time.Hour // certificates start this long ago, for clocks that lag
)

// DevCA is a certificate authority in a directory, for development and demonstration. Each has a key of its own: nothing
// is built in.
type DevCA struct {
	dir, trustDomain string
	cert             *x509.Certificate
	key              *ecdsa.PrivateKey
}

// NewDevCA loads the authority in dir, or makes one there (ca.pem, and ca.key that only its owner may read). It refuses
// an authority of another trust domain and a half of one.
func NewDevCA(dir, trustDomain string) (*DevCA, error) {
	if !hasOnlyIDChars(trustDomain, false) || len(trustDomain) > maxTrustDomainBytes {
		return nil, fmt.Errorf("making authority: %w: trust domain %q", ErrInvalidID, trustDomain)
	}
	ca := &DevCA{dir: dir, trustDomain: trustDomain}
	_, certErr := os.Stat(ca.certPath())
	_, keyErr := os.Stat(ca.keyPath())
	switch {
	case certErr == nil && keyErr == nil:
		return ca, ca.loadAuthority()
	case errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist):
		return ca, ca.createAuthority()
	}
	return nil, fmt.Errorf("opening authority in %s: one of ca.pem and ca.key is missing: restore it, or remove the other to start again", dir)
}

// IssueCert writes a certificate and key for id to dir, named after id.FileName, valid for ttl, and says where they are. It
// replaces an earlier certificate of the same identity, and refuses to replace another's.
func (ca *DevCA) IssueCert(id ID, dir string, ttl time.Duration) (CertFiles, error) {
	if err := id.Validate(); err != nil {
		return CertFiles{}, fmt.Errorf("issuing certificate: %w", err)
	}
	if id.TrustDomain != ca.trustDomain {
		return CertFiles{}, fmt.Errorf("issuing certificate: %s is not of trust domain %s", id, ca.trustDomain)
	}
	f := id.FilesIn(dir)
	f.CA = ca.certPath()
	if err := checkCertOwner(f.Cert, id); err != nil {
		return CertFiles{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CertFiles{}, fmt.Errorf("issuing certificate: %w", err)
	}
	der, err := ca.signCert(id, key, ttl)
	if err != nil {
		return CertFiles{}, fmt.Errorf("issuing certificate: %w", err)
	}
	return f, writePair(f.Cert, f.Key, der, key)
}

func (ca *DevCA) signCert(id ID, key *ecdsa.PrivateKey, ttl time.Duration) ([]byte, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	uri, err := url.Parse(id.String())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.Name},
		URIs:         []*url.URL{uri},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     earlierTime(now.Add(ttl), ca.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true,
	}, ca.cert, &key.PublicKey, ca.key)
}

// createAuthority makes a key and a self-signed certificate that may speak for its trust domain only (RFC 5280 4.2.1.10).
func (ca *DevCA) createAuthority() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making authority: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return fmt.Errorf("making authority: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Spillway development authority for " + ca.trustDomain},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(devCATTL),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:     []*url.URL{{Scheme: "spiffe", Host: ca.trustDomain}},
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
		PermittedURIDomains: []string{ca.trustDomain}, PermittedDNSDomainsCritical: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("making authority: %w", err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("making authority: %w", err)
	}
	ca.key = key
	return writePair(ca.certPath(), ca.keyPath(), der, key)
}

func (ca *DevCA) loadAuthority() error {
	pair, err := tls.LoadX509KeyPair(ca.certPath(), ca.keyPath())
	if err != nil {
		return fmt.Errorf("opening authority in %s: %w", ca.dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA || len(pair.Leaf.URIs) != 1 {
		return fmt.Errorf("opening authority in %s: not one that spillway made", ca.dir)
	}
	if got := pair.Leaf.URIs[0].Host; got != ca.trustDomain {
		return fmt.Errorf("opening authority in %s: it speaks for %q, not for %q", ca.dir, got, ca.trustDomain)
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return fmt.Errorf("opening authority in %s: it ended on %s: remove ca.pem and ca.key to start again", ca.dir, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	ca.cert, ca.key = pair.Leaf, key
	return nil
}

func (ca *DevCA) certPath() string { return filepath.Join(ca.dir, "ca.pem") }
func (ca *DevCA) keyPath() string  { return filepath.Join(ca.dir, "ca.key") }

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
