package global

import (
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// sealer makes the zone that is answered from: the frame's, signed as was agreed. What was signed is kept while frames,
// keys and Views come and go.
type sealer struct {
	kept    *dns.Signatures
	frame   *frame
	signing *consensus.Signing
	zone    *dns.Zone
}

// seal returns the frame's zone where it is not to be signed.
func (k *keeper) seal(st *consensus.State) *dns.Zone {
	s := &k.sealer
	if s.frame == k.frame && s.signing == st.Signing {
		return s.zone
	}
	s.frame, s.signing, s.zone = k.frame, st.Signing, k.frame.zone
	if st.Signing == nil || st.Signing.Zone != k.frame.zone.Name {
		return s.zone
	}
	signer, err := signerOf(st.Signing, k.frame.spec, s.kept)
	if err != nil { // apply takes no such keys
		k.s.log.Error("zone cannot be signed", telemetry.Err(err))
		return s.zone
	}
	zone := *k.frame.zone
	zone.Signer = signer
	s.zone = &zone
	return s.zone
}

func signerOf(g *consensus.Signing, sp *spec.Spec, kept *dns.Signatures) (*dns.Signer, error) {
	c := dns.SignerConfig{
		Zone: g.Zone, KeyTTL: seconds(sp.Zone.DNSSEC.KeyTTL), Lifetime: sp.SignatureLifetime(), Parent: wish(g), Kept: kept,
	}
	for _, k := range g.Keys {
		key, err := dns.NewKey(k.Secret)
		if err != nil {
			return nil, err
		}
		c.Keys = append(c.Keys, key)
	}
	return dns.NewSigner(c)
}

// wish is what CDS and CDNSKEY ask the parent for: what an operator is asked to have it show.
func wish(g *consensus.Signing) dns.Wish {
	switch g.Phase {
	case consensus.PhaseNew:
		return dns.NoWish
	case consensus.PhaseLeaving, consensus.PhaseUnsigning:
		return dns.RemoveDS
	}
	return dns.ShowDS
}

// holdsOf is for how long resolvers may hold what a spec has them answered.
func holdsOf(text []byte) consensus.Holds {
	sp, err := spec.Decode("spec", text)
	if err != nil {
		return consensus.Holds{}
	}
	d := &sp.Zone.DNSSEC
	return consensus.Holds{
		Zone: sp.Zone.Name, Answers: sp.LongestTTL(),
		Keys: time.Duration(d.KeyTTL), Parent: time.Duration(d.DSTTL), Spread: time.Duration(d.Propagation),
	}
}

// phase is the word for how the zone is signed.
func (v *View) phase() string {
	if v.state.Signing == nil {
		return unsigned
	}
	return string(v.state.Signing.Phase)
}

const unsigned = "unsigned"
