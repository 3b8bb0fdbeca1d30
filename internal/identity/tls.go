package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ServerTLS returns the TLS configuration of a listener for the protocol alpn (empty: no protocol is negotiated): TLS
// 1.3, a client certificate that chains to the trusted authority with exactly one identity of the trust domain, then
// verify (nil: any such identity). Session tickets are off, so that every connection is authenticated in full.
// Connections share the result of GetConfigForClient: a caller that changes it clones it first.
func (c *Certs) ServerTLS(alpn string, verify func(ID) error) *tls.Config {
	return c.newServerTLS(alpn, verify, tls.RequireAndVerifyClientCert)
}

// ServerTLSOptionalClientCert is ServerTLS for a listener that also accepts clients without a certificate, which
// authenticate by other means. A presented certificate must still satisfy verify.
func (c *Certs) ServerTLSOptionalClientCert(alpn string, verify func(ID) error) *tls.Config {
	return c.newServerTLS(alpn, verify, tls.VerifyClientCertIfGiven)
}

func (c *Certs) newServerTLS(alpn string, verify func(ID) error, auth tls.ClientAuthType) *tls.Config {
	cfg := c.newBaseTLS(alpn)
	var last atomic.Pointer[cachedTLSConfig]
	var peers sharedCerts
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		b := c.currentBundle()
		if f := last.Load(); f != nil && f.bundle == b {
			return f.cfg, nil
		}
		one := c.newBaseTLS(alpn)
		one.ClientAuth = auth
		one.ClientCAs = b.roots
		one.Certificates = []tls.Certificate{b.cert}
		one.VerifyConnection = func(cs tls.ConnectionState) error {
			if auth != tls.RequireAndVerifyClientCert && len(cs.PeerCertificates) == 0 {
				return nil
			}
			if err := verifyPeer(cs, alpn, b.id, verify); err != nil {
				return err
			}
			peers.shareParsed(cs)
			return nil
		}
		last.Store(&cachedTLSConfig{b, one})
		return one, nil
	}
	return cfg
}

// cachedTLSConfig is the configuration shared by all connections that began while a bundle was in use. They hold it
// until they end.
type cachedTLSConfig struct {
	bundle *certBundle
	cfg    *tls.Config
}

// ClientTLS returns the TLS configuration for dialling a peer with the protocol alpn, with the same requirements as
// ServerTLS. The host name is not checked: a peer is identified by the URI in its certificate, on any host.
func (c *Certs) ClientTLS(alpn string, verify func(ID) error) *tls.Config {
	cfg := c.newBaseTLS(alpn)
	cfg.InsecureSkipVerify = true // only the host name is not checked: VerifyConnection below verifies the chain
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &c.currentBundle().cert, nil
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		b := c.currentBundle()
		if err := verifyPeerChain(cs.PeerCertificates, b.roots); err != nil {
			return err
		}
		return verifyPeer(cs, alpn, b.id, verify)
	}
	return cfg
}

// AnonymousClientTLS returns the TLS configuration for dialling a peer without a client certificate: the peer's
// certificate must chain to one of the roots and satisfy verify.
func AnonymousClientTLS(roots *x509.CertPool, alpn string, verify func(ID) error) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}, InsecureSkipVerify: true} // as in ClientTLS
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verifyPeerChain(cs.PeerCertificates, roots); err != nil {
			return err
		}
		id, err := PeerID(cs)
		if err != nil {
			return err
		}
		return verify(id)
	}
	return cfg
}

// PeerID returns the identity of the peer of an established connection.
func PeerID(cs tls.ConnectionState) (ID, error) {
	if len(cs.PeerCertificates) == 0 {
		return ID{}, errors.New("peer presented no certificate")
	}
	return leafID(cs.PeerCertificates[0])
}

func (c *Certs) newBaseTLS(alpn string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	if alpn != "" {
		cfg.NextProtos = []string{alpn}
	}
	return cfg
}

// verifyPeer checks a peer whose chain has been verified.
func verifyPeer(cs tls.ConnectionState, alpn string, self ID, verify func(ID) error) error {
	if cs.NegotiatedProtocol != alpn {
		return fmt.Errorf("peer does not speak %q", alpn)
	}
	id, err := PeerID(cs)
	if err != nil {
		return err
	}
	if id.TrustDomain != self.TrustDomain {
		return fmt.Errorf("peer %s is not of trust domain %s", id, self.TrustDomain)
	}
	if verify == nil {
		return nil
	}
	if err := verify(id); err != nil {
		return fmt.Errorf("peer %s refused: %w", id, err)
	}
	return nil
}

func verifyPeerChain(certs []*x509.Certificate, roots *x509.CertPool) error {
	if len(certs) == 0 {
		return errors.New("peer presented no certificate")
	}
	inter := x509.NewCertPool()
	for _, c := range certs[1:] {
		inter.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// leafID returns the one SPIFFE URI of a leaf certificate (X509-SVID 2: exactly one URI SAN, and not an authority).
func leafID(leaf *x509.Certificate) (ID, error) {
	switch {
	case leaf.IsCA:
		return ID{}, errors.New("the certificate is that of an authority, not of a node")
	case len(leaf.URIs) != 1:
		return ID{}, fmt.Errorf("the certificate has %d URIs, want exactly one", len(leaf.URIs))
	}
	return ParseID(leaf.URIs[0].String())
}

// ServerTLSNoClientCert returns the TLS configuration of a listener whose clients have no certificate and authenticate
// by other means. Clients still verify the listener.
func (c *Certs) ServerTLSNoClientCert() *tls.Config {
	cfg := c.newBaseTLS("")
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.currentBundle().cert, nil }
	return cfg
}

// ClientTLSForCA returns the TLS configuration for dialling such a listener: the server's certificate must chain to the
// authority in caFile and contain an identity that verify accepts. The host name is not checked, as in Certs.ClientTLS.
func ClientTLSForCA(caFile string, verify func(ID) error) (*tls.Config, error) {
	text, err := readPEM(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading authority %s: the file has no PEM certificate", caFile)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // only the host name is not checked: VerifyConnection below verifies the chain
		VerifyConnection: func(cs tls.ConnectionState) error {
			if err := verifyPeerChain(cs.PeerCertificates, roots); err != nil {
				return err
			}
			id, err := PeerID(cs)
			if err != nil {
				return errors.Join(errors.New("the server's certificate is not one of Spillway"), err)
			}
			return verify(id)
		},
	}, nil
}

// maxSharedCerts bounds the certificates that a listener caches. A region has fewer nodes.
const maxSharedCerts = 1024

// sharedCerts are verified certificates of peers. A peer presents the same one on each connection, and crypto/tls
// parses a client's certificate each time: without sharing, each connection holds its own copy of some 4 KB.
type sharedCerts struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*x509.Certificate
}

// shareParsed makes the connection of an accepted peer hold the copies that were parsed first, by replacing the
// elements of the connection's own slices.
func (k *sharedCerts) shareParsed(cs tls.ConnectionState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replaceWithShared(cs.PeerCertificates)
	for _, chain := range cs.VerifiedChains {
		k.replaceWithShared(chain)
	}
}

func (k *sharedCerts) replaceWithShared(certs []*x509.Certificate) {
	for i, c := range certs {
		sum := sha256.Sum256(c.Raw)
		first := k.byHash[sum]
		if first == nil {
			if k.byHash == nil || len(k.byHash) >= maxSharedCerts {
				k.byHash = map[[sha256.Size]byte]*x509.Certificate{}
			}
			first, k.byHash[sum] = c, c
		}
		certs[i] = first
	}
}
