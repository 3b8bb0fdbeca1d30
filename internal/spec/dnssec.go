package spec

import (
	"time"
)

// DNSSEC holds the signing parameters of the zone. Signing is started by `spillway dnssec enable` and ended by
// `disable`, not by the spec, so that rolling back to an older spec cannot remove the signatures while the
// parent zone has a DS.
type DNSSEC struct {
	// SignatureLifetime is how long a signature is valid; at least three quarters of that are left when it is
	// sent. 0 means 72h, or twice the longest TTL if that is more.
	SignatureLifetime Duration `yaml:"signature_lifetime"`
	// KeyTTL is the TTL of the zone's keys. A key roll waits this long before the new key is used. Default 1h.
	KeyTTL Duration `yaml:"key_ttl" default:"1h"`
	// DSTTL is the TTL of DS records in the parent zone, which the parent sets: see it with `dig DS` of a
	// sibling. A key roll waits this long before the old key is removed. Default 24h.
	DSTTL Duration `yaml:"ds_ttl" default:"24h"`
	// Propagation is the longest time until all global nodes serve a change, including clock differences. Each
	// step of a key roll waits for it. Default 5m.
	Propagation Duration `yaml:"propagation" default:"5m"`
}

// defaultSignatureLifetime is the signature lifetime if the spec sets none.
const defaultSignatureLifetime = 72 * time.Hour

// LongestTTL returns the longest TTL of the zone's own data and of the services' answers.
func (s *Spec) LongestTTL() time.Duration {
	longest := time.Duration(s.Zone.TTL)
	for i := range s.Services {
		longest = max(longest, time.Duration(s.Services[i].TTL))
	}
	return longest
}

// SignatureLifetime returns how long signatures are valid.
func (s *Spec) SignatureLifetime() time.Duration {
	if d := time.Duration(s.Zone.DNSSEC.SignatureLifetime); d > 0 {
		return d
	}
	return max(defaultSignatureLifetime, 2*max(s.LongestTTL(), time.Duration(s.Zone.DNSSEC.KeyTTL)))
}
