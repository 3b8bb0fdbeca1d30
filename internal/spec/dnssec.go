package spec

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// DNSSEC is how the zone is signed while it is: `spillway dnssec enable` begins that and `disable` ends it, and not the
// spec, so that going back to an older spec cannot take the signatures from under a DS that the parent zone shows.
type DNSSEC struct {
	// SignatureLifetime is how long a signature is valid; three quarters of that are left at least when it is sent.
	// 0: 72h, or twice the longest TTL where that is more.
	SignatureLifetime Duration `yaml:"signature_lifetime"`
	// KeyTTL is the TTL of the zone's keys. A roll waits for it before the new key is used. Default 1h.
	KeyTTL Duration `yaml:"key_ttl" default:"1h"`
	// DSTTL is the TTL that DS records have in the parent zone, which is the parent's to choose: look at it with
	// `dig DS` of a sibling. A roll waits for it before the old key goes. Default 24h.
	DSTTL Duration `yaml:"ds_ttl" default:"24h"`
	// Propagation is until every global node is taken to answer by what was agreed, differences of clocks included.
	// Each step of a roll waits for it. Default 5m.
	Propagation Duration `yaml:"propagation" default:"5m"`
}

// lifetime is what signatures live unless the spec says otherwise.
const lifetime = 72 * time.Hour

// LongestTTL is that of the zone's own data and of the services' answers.
func (s *Spec) LongestTTL() time.Duration {
	longest := time.Duration(s.Zone.TTL)
	for i := range s.Services {
		longest = max(longest, time.Duration(s.Services[i].TTL))
	}
	return longest
}

// SignatureLifetime is how long signatures are valid.
func (s *Spec) SignatureLifetime() time.Duration {
	if d := time.Duration(s.Zone.DNSSEC.SignatureLifetime); d > 0 {
		return d
	}
	return max(lifetime, 2*max(s.LongestTTL(), time.Duration(s.Zone.DNSSEC.KeyTTL)))
}

func (j *judge) dnssec(d *DNSSEC) {
	const path = "$.zone.dnssec."
	j.between(path+"key_ttl", "key_ttl", d.KeyTTL, time.Second, 7*24*time.Hour)
	j.between(path+"ds_ttl", "ds_ttl", d.DSTTL, time.Second, 30*24*time.Hour)
	j.between(path+"propagation", "propagation", d.Propagation, time.Second, 7*24*time.Hour)
	if d.SignatureLifetime == 0 {
		return
	}
	j.between(path+"signature_lifetime", "signature_lifetime", d.SignatureLifetime, time.Hour, 60*24*time.Hour)
	if least := 2 * max(j.spec.LongestTTL(), time.Duration(d.KeyTTL)); time.Duration(d.SignatureLifetime) < least {
		j.bad(path+"signature_lifetime", fmt.Sprintf("signatures of %s would end while resolvers may hold answers", d.SignatureLifetime),
			fmt.Sprintf("write at least %s, twice the longest TTL, or leave it out", strict.FormatDuration(least)))
	}
}
