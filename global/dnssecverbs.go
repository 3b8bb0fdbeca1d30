package global

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
)

// dnssecAdmin shows and changes how the zone is signed for the operator.
type dnssecAdmin struct {
	name     string
	log      *slog.Logger
	node     *consensus.Node
	snapshot *currentSnapshot
}

// showDNSSEC returns how the zone is signed and what the next step is.
func (s *dnssecAdmin) showDNSSEC(context.Context) (*admin.DNSSECAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	return s.describeDNSSEC(v, time.Now())
}

func (s *dnssecAdmin) describeDNSSEC(v *nodeSnapshot, now time.Time) (*admin.DNSSECAnswer, error) {
	out := &admin.DNSSECAnswer{Node: s.name, Zone: v.policy.zone.Name, Phase: phaseUnsigned, Keys: []admin.DNSSECKey{}, DS: []string{}}
	out.Next = "once every global node runs this release, `spillway dnssec enable` signs the zone"
	g := v.state.Signing
	if g == nil {
		return out, nil
	}
	out.Zone, out.Phase, out.Since, out.Due = g.Zone, string(g.Phase), g.PhaseSince, g.StepDueAt
	for i, k := range g.Keys {
		key, err := dns.NewSigningKey(k.Secret)
		if err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, admin.DNSSECKey{
			Tag: key.Tag(), Made: k.At, SignsAnswers: i == 0,
			Record: fmt.Sprintf("%s %d IN DNSKEY %s", g.Zone, ttlSeconds(v.Spec.Zone.DNSSEC.KeyTTL), key.DNSKEY()),
		})
	}
	if k, ok := g.ParentKey(); ok {
		key, err := dns.NewSigningKey(k.Secret)
		if err != nil {
			return nil, err
		}
		out.DS = append(out.DS, fmt.Sprintf("%s %d IN DS %s", g.Zone, ttlSeconds(v.Spec.Zone.DNSSEC.DSTTL), key.DS(g.Zone)))
	}
	out.Next = s.describeNextStep(g, now)
	return out, nil
}

// describeNextStep describes what the phase waits for.
func (s *dnssecAdmin) describeNextStep(g *consensus.ZoneSigning, now time.Time) string {
	next := map[consensus.SigningPhase]string{
		consensus.PhaseNew:       "wait: resolvers may still cache unsigned answers; do not publish a DS in the parent zone yet",
		consensus.PhasePublish:   "publish the output of `spillway dnssec ds` in the parent zone; when all its servers return it, run `spillway dnssec seen`",
		consensus.PhaseSigned:    "nothing to do; `spillway dnssec roll` replaces the key",
		consensus.PhaseRolling:   "wait: resolvers may still cache the key set without the new key; do not change the parent zone yet",
		consensus.PhaseReplace:   "replace the DS in the parent zone with the output of `spillway dnssec ds`; when all its servers return it, run `spillway dnssec seen`",
		consensus.PhaseRetiring:  "wait: resolvers may still cache answers that need the old key",
		consensus.PhaseLeaving:   "remove the DS from the parent zone; when none of its servers returns one, run `spillway dnssec seen`. To keep the zone signed instead, run `spillway dnssec enable`",
		consensus.PhaseUnsigning: "wait: resolvers may still cache the DS, so answers remain signed",
	}[g.Phase]
	if silent := s.node.SilentVoters(); g.IsStepDue(now) && len(silent) > 0 {
		var names []string
		for _, q := range silent {
			names = append(names, q.ID)
		}
		next += "; the step is due, but voters do not respond and would keep the old state: " + strings.Join(names, ", ") + "; restart them, or remove them with `spillway members remove`"
	}
	return next
}

// changeDNSSEC performs a signing step that an operator triggers.
func (s *dnssecAdmin) changeDNSSEC(ctx context.Context, r admin.DNSSECRequest, actor string) (*admin.DNSSECAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(admin.DNSSECActions(), r.Action) {
		return nil, admin.BadRequestError(fmt.Sprintf("unknown DNSSEC action %q", r.Action), "actions are "+strings.Join(admin.DNSSECActions(), ", "))
	}
	var secret []byte
	if r.Action == consensus.SignEnable || r.Action == consensus.SignRoll {
		if secret, err = newSigningSecret(v.state.Signing); err != nil {
			return nil, err
		}
	}
	if err := s.node.ChangeSigning(ctx, r.Action, v.policy.zone.Name, secret, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	agreed := s.node.State()
	s.log.Info("DNSSEC signing changed", "action", r.Action, "zone", v.policy.zone.Name, "reason", r.Reason, "actor", actor)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.state.Index >= agreed.Index })
	return s.showDNSSEC(ctx)
}

// newSigningSecret makes a key whose tag differs from those in use: resolvers would have to try both keys.
func newSigningSecret(g *consensus.ZoneSigning) ([]byte, error) {
	for {
		secret, tag, err := dns.NewSigningSecret()
		if err != nil {
			return nil, err
		}
		taken := false
		for i := 0; g != nil && i < len(g.Keys); i++ {
			k, err := dns.NewSigningKey(g.Keys[i].Secret)
			taken = taken || err == nil && k.Tag() == tag
		}
		if !taken {
			return secret, nil
		}
	}
}
