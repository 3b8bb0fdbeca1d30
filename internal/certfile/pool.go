package certfile

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// RootPool is a file of authorities that are trusted in addition to the system's.
type RootPool struct{ watchedFile[rootSet] }

type rootSet struct {
	pool    *x509.CertPool
	expires time.Time // of the first authority to expire
}

// LoadRootPool reads a PEM file of authorities. name is the configuration key that sets it, for messages.
func LoadRootPool(name, path string, log *slog.Logger) (*RootPool, error) {
	p := &RootPool{watchedFile[rootSet]{name: name, paths: []string{path}, log: cmp.Or(log, slog.New(slog.DiscardHandler))}}
	p.load = func() (*rootSet, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		r, err := readRoots(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", name, path, err)
		}
		return r, nil
	}
	return p, p.Reload()
}

func readRoots(text []byte) (*rootSet, error) {
	expires, err := EarliestExpiry(text)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(text)
	return &rootSet{pool: pool, expires: expires}, nil
}

// EarliestExpiry returns when the first of the certificates in a PEM text expires.
func EarliestExpiry(text []byte) (first time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, fmt.Errorf("parsing a certificate: %w", err)
		}
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	if first.IsZero() {
		return first, errors.New("the file has no certificate")
	}
	return first, nil
}

// Expires returns when the first authority of the file expires.
func (p *RootPool) Expires() time.Time { return p.currentValue().expires }

// ClientConfig returns the TLS configuration of a client that verifies servers with the authorities in use at each
// handshake.
func (p *RootPool) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection below verifies chain and name: RootCAs could not change later
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("the server presented no certificate")
			}
			o := x509.VerifyOptions{Roots: p.currentValue().pool, DNSName: cs.ServerName, Intermediates: x509.NewCertPool()}
			for _, c := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		},
	}
}

// ClientAuthorities is a file of the authorities that sign the certificates of clients. The system's are not trusted.
type ClientAuthorities struct{ watchedFile[x509.CertPool] }

// LoadClientAuthorities reads a PEM file of authorities. name is the configuration key that sets it, for messages.
func LoadClientAuthorities(name, path string, log *slog.Logger) (*ClientAuthorities, error) {
	p := &ClientAuthorities{watchedFile[x509.CertPool]{name: name, paths: []string{path}, log: cmp.Or(log, slog.New(slog.DiscardHandler))}}
	p.load = func() (*x509.CertPool, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if _, err = EarliestExpiry(text); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", name, path, err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		return pool, nil
	}
	return p, p.Reload()
}

// VerifyClient implements tls.Config.VerifyConnection of a server, with the authorities in use at each handshake.
func (p *ClientAuthorities) VerifyClient(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the client presented no certificate")
	}
	o := x509.VerifyOptions{Roots: p.currentValue(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	return err
}
