package identity

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fleet identifies the installation that the node belongs to, by its trust domain and its authority. Certificates of
// NewProcessCerts identify their process.
func (c *Certs) Fleet() string {
	b := c.current.Load()
	sum := sha256.Sum256(b.rootCert.Raw)
	return b.id.TrustDomain + "/" + hex.EncodeToString(sum[:4])
}
