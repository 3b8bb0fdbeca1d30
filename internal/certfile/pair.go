package certfile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"
)

// KeyPair is a server's certificate with its private key. A pair that does not match never replaces one that does.
type KeyPair struct{ watchedFile[tls.Certificate] }

// LoadKeyPair reads a certificate and its key. name is the configuration key that sets it, such as "http.tls_cert", for
// messages.
func LoadKeyPair(name, cert, key string, log *slog.Logger) (*KeyPair, error) {
	p := &KeyPair{watchedFile[tls.Certificate]{name: name, paths: []string{cert, key}, log: cmp.Or(log, slog.New(slog.DiscardHandler))}}
	p.load = func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate of %s: %w", name, err)
		}
		return &c, nil
	}
	return p, p.Reload()
}

// GetCertificate implements tls.Config.GetCertificate.
func (p *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.currentValue(), nil
}

// Expires returns when the certificate expires.
func (p *KeyPair) Expires() time.Time { return p.currentValue().Leaf.NotAfter }
