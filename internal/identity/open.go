package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

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
