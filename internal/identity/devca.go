package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	devCATTL  = 10 * 365 * 24 * time.Hour
	clockSkew = time.Hour // certificates are valid from this long before their creation, for hosts whose clocks are slow
)

// DevCA is a certificate authority in a directory, for development and demonstration. Each DevCA generates its own key.
type DevCA struct {
	dir, trustDomain string
	cert             *x509.Certificate
	key              *ecdsa.PrivateKey
}

// NewDevCA loads the authority in dir, or creates one there: ca.pem, and ca.key that only its owner may read. It
// returns an error if dir holds an authority of another trust domain, or only one of the two files.
func NewDevCA(dir, trustDomain string) (*DevCA, error) {
	if !hasOnlyIDChars(trustDomain, false) || len(trustDomain) > maxTrustDomainBytes {
		return nil, fmt.Errorf("creating authority: %w: trust domain %q", ErrInvalidID, trustDomain)
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
	return nil, fmt.Errorf("opening authority in %s: one of ca.pem and ca.key is missing: restore it, or remove the other to create a new authority", dir)
}

// IssueCert writes a certificate and key for id to dir, named by id.FileName and valid for ttl, and returns their
// paths. It replaces an earlier certificate of the same identity, and returns an error rather than replace that of
// another.
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

// createAuthority creates a key and a self-signed certificate that is valid for its trust domain only (name
// constraints, RFC 5280 4.2.1.10).
func (ca *DevCA) createAuthority() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("creating authority: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return fmt.Errorf("creating authority: %w", err)
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
		return fmt.Errorf("creating authority: %w", err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("creating authority: %w", err)
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
		return fmt.Errorf("opening authority in %s: it was not created by `spillway certs dev`", ca.dir)
	}
	if got := pair.Leaf.URIs[0].Host; got != ca.trustDomain {
		return fmt.Errorf("opening authority in %s: its trust domain is %q, not %q", ca.dir, got, ca.trustDomain)
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return fmt.Errorf("opening authority in %s: it expired on %s: remove ca.pem and ca.key to create a new one", ca.dir, pair.Leaf.NotAfter.Format(time.DateOnly))
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

// writePair writes a key and its certificate, key first, each by rename, both readable by their owner only.
func writePair(certPath, keyPath string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("writing key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(certPath), 0o700); err != nil {
		return fmt.Errorf("writing certificate: %w", err)
	}
	if err := writePEM(keyPath, "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(certPath, "CERTIFICATE", der)
}

func writePEM(path, kind string, der []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // created with mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(tmp.Name()) // fails harmlessly after the rename
	err = pem.Encode(tmp, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// checkCertOwner returns an error if the file holds a certificate of another identity.
func checkCertOwner(path string, id ID) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("issuing certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("issuing certificate for %s: %s is not a certificate: choose another directory or name", id, path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("issuing certificate for %s: reading %s: %w", id, path, err)
	}
	switch got, err := leafID(cert); {
	case err != nil:
		return fmt.Errorf("issuing certificate for %s: %s is a certificate of CN=%s that is not one of a node: choose another directory or name", id, path, cert.Subject.CommonName)
	case got != id:
		return fmt.Errorf("issuing certificate for %s: %s is a certificate of %s: choose another directory or name", id, path, got)
	}
	return nil
}
