package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync"
)

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
