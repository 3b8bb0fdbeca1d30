package certfile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"
)

// Pair is a server's certificate with its key. A pair that does not fit never replaces one that does.
type Pair struct{ file[tls.Certificate] }

// LoadPair reads a certificate and its key, and is named by the configuration key that sets it, such as "http.tls_cert".
func LoadPair(name, cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{file[tls.Certificate]{name: name, paths: []string{cert, key}, log: cmp.Or(log, slog.New(slog.DiscardHandler))}}
	p.read = func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate of %s: %w", name, err)
		}
		return &c, nil
	}
	return p, p.Reload()
}

// Get is tls.Config's GetCertificate.
func (p *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }

// Expires is when the certificate ends.
func (p *Pair) Expires() time.Time { return p.current().Leaf.NotAfter }
