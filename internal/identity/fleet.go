package identity

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fleet identifies the installation that this node is part of: its trust domain and the authority that it trusts.
// Certificates of one process identify that process.
func (c *Certs) Fleet() string {
	b := c.current.Load()
	sum := sha256.Sum256(b.rootCert.Raw)
	return b.id.TrustDomain + "/" + hex.EncodeToString(sum[:4])
}
