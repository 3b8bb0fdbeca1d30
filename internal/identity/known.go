package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync"
)

// maxSharedCerts bounds the certificates that a listener remembers. A region has fewer nodes.
const maxSharedCerts = 1024

// sharedCerts are certificates that peers have shown and that were verified. A peer shows the same one on each connection, and
// every reading of it takes some 4 KB for as long as the connection lives: crypto/tls reads a client's each time anew.
type sharedCerts struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*x509.Certificate
}

// shareParsed has a connection whose peer was admitted hold the certificates that were read first, by putting them into the
// slices of its state, which are the connection's own.
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
