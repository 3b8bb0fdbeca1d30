package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync"
)

// maxKnown bounds the certificates that a listener remembers. A region has fewer nodes.
const maxKnown = 1024

// known are certificates that peers have shown and that were verified. A peer shows the same one on each connection, and
// every reading of it takes some 4 KB for as long as the connection lives: crypto/tls reads a client's each time anew.
type known struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*x509.Certificate
}

// share has a connection whose peer was admitted hold the certificates that were read first, by putting them into the
// slices of its state, which are the connection's own.
func (k *known) share(cs tls.ConnectionState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(cs.PeerCertificates)
	for _, chain := range cs.VerifiedChains {
		k.put(chain)
	}
}

func (k *known) put(certs []*x509.Certificate) {
	for i, c := range certs {
		sum := sha256.Sum256(c.Raw)
		first := k.all[sum]
		if first == nil {
			if k.all == nil || len(k.all) >= maxKnown {
				k.all = map[[sha256.Size]byte]*x509.Certificate{}
			}
			first, k.all[sum] = c, c
		}
		certs[i] = first
	}
}
