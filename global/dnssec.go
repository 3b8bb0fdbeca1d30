package global

import (
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// zoneSigner produces the zone that DNS answers from: the zone of the nodePolicy, signed with the agreed keys.
// Signatures are cached across changes of policies, keys and snapshots.
type zoneSigner struct {
	signatures *dns.SignatureCache
	policy     *nodePolicy
	signing    *consensus.ZoneSigning
	zone       *dns.ZoneData
}

// signZone returns the policy's own zone if it is not to be signed.
func (k *snapshotBuilder) signZone(st *consensus.State) *dns.ZoneData {
	s := &k.zoneSigner
	if s.policy == k.policy && s.signing == st.Signing {
		return s.zone
	}
	s.policy, s.signing, s.zone = k.policy, st.Signing, k.policy.zone
	if st.Signing == nil || st.Signing.Zone != k.policy.zone.Name {
		return s.zone
	}
	signer, err := newSignerFor(st.Signing, k.policy.Spec, s.signatures)
	if err != nil { // consensus refuses such keys when they are applied
		k.s.log.Error("zone cannot be signed: its answers are sent unsigned, and validating resolvers reject them while the parent zone has a DS; `spillway dnssec` shows the keys", telemetry.ErrorAttr(err))
		return s.zone
	}
	zone := *k.policy.zone
	zone.Signer = signer
	s.zone = &zone
	return s.zone
}

func newSignerFor(g *consensus.ZoneSigning, sp *spec.Spec, kept *dns.SignatureCache) (*dns.Signer, error) {
	c := dns.SignerConfig{
		Zone: g.Zone, KeyTTL: ttlSeconds(sp.Zone.DNSSEC.KeyTTL), Lifetime: sp.SignatureLifetime(), CDS: parentWish(g), Cache: kept,
	}
	for _, k := range g.Keys {
		key, err := dns.NewSigningKey(k.Secret)
		if err != nil {
			return nil, err
		}
		c.Keys = append(c.Keys, key)
	}
	return dns.NewSigner(c)
}

// parentWish returns what CDS and CDNSKEY request from the parent zone, equal to what the operator is asked to
// publish there.
func parentWish(g *consensus.ZoneSigning) dns.CDSAction {
	switch g.Phase {
	case consensus.PhaseNew:
		return dns.CDSNone
	case consensus.PhaseLeaving, consensus.PhaseUnsigning:
		return dns.CDSDelete
	}
	return dns.CDSPublish
}

// computeHolds returns for how long resolvers may cache the answers of a spec.
func computeHolds(text []byte) consensus.HoldTimes {
	sp, err := specCache.decodeText(text)
	if err != nil {
		return consensus.HoldTimes{}
	}
	d := &sp.Zone.DNSSEC
	return consensus.HoldTimes{
		Zone: sp.Zone.Name, AnswerTTL: sp.LongestTTL(),
		KeyTTL: time.Duration(d.KeyTTL), ParentTTL: time.Duration(d.DSTTL), Propagation: time.Duration(d.Propagation),
	}
}

// signingPhase returns the name of the zone's signing phase.
func (v *nodeSnapshot) signingPhase() string {
	if v.state.Signing == nil {
		return phaseUnsigned
	}
	return string(v.state.Signing.Phase)
}

const phaseUnsigned = "unsigned"
