package global

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
)

// dnssec says how the zone is signed, and what is next.
func (s *Server) dnssec(context.Context) (*admin.DNSSECAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	return s.describeDNSSEC(v, time.Now())
}

func (s *Server) describeDNSSEC(v *View, now time.Time) (*admin.DNSSECAnswer, error) {
	out := &admin.DNSSECAnswer{Node: s.cfg.Name, Zone: v.zone.Name, Phase: unsigned, Keys: []admin.DNSSECKey{}, DS: []string{}}
	out.Next = "`spillway dnssec enable` signs the zone: once every global node runs this release"
	g := v.state.Signing
	if g == nil {
		return out, nil
	}
	out.Zone, out.Phase, out.Since, out.Due = g.Zone, string(g.Phase), g.Since, g.Due
	for i, k := range g.Keys {
		key, err := dns.NewKey(k.Secret)
		if err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, admin.DNSSECKey{
			Tag: key.Tag(), Made: k.At, SignsAnswers: i == 0,
			Record: fmt.Sprintf("%s %d IN DNSKEY %s", g.Zone, seconds(v.spec.Zone.DNSSEC.KeyTTL), key.DNSKEY()),
		})
	}
	if k, ok := g.Parent(); ok {
		key, err := dns.NewKey(k.Secret)
		if err != nil {
			return nil, err
		}
		out.DS = append(out.DS, fmt.Sprintf("%s %d IN DS %s", g.Zone, seconds(v.spec.Zone.DNSSEC.DSTTL), key.DS(g.Zone)))
	}
	out.Next = s.nextOf(g, now)
	return out, nil
}

// nextOf is what the phase waits for.
func (s *Server) nextOf(g *consensus.Signing, now time.Time) string {
	next := map[consensus.Phase]string{
		consensus.PhaseNew:       "wait: resolvers may still hold unsigned answers, so the parent zone is to have no DS yet",
		consensus.PhasePublish:   "have the parent zone show what `spillway dnssec ds` prints; when all its servers do: `spillway dnssec seen`",
		consensus.PhaseSigned:    "nothing; `spillway dnssec roll` brings in another key",
		consensus.PhaseRolling:   "wait: resolvers may still hold the keys without the new one, so the parent zone stays as it is",
		consensus.PhaseReplace:   "have the parent zone show what `spillway dnssec ds` prints, in place of the DS that it has; when all its servers do: `spillway dnssec seen`",
		consensus.PhaseRetiring:  "wait: resolvers may still hold what needs the old key",
		consensus.PhaseLeaving:   "have the parent zone remove the DS; when none of its servers shows one: `spillway dnssec seen`. `spillway dnssec enable` goes back",
		consensus.PhaseUnsigning: "wait: resolvers may still hold the DS, so answers are signed",
	}[g.Phase]
	if silent := s.node.Silent(); g.Ready(now) && len(silent) > 0 {
		var names []string
		for _, q := range silent {
			names = append(names, q.ID)
		}
		next += "; it is time, but nothing was heard of " + strings.Join(names, ", ") + " of late, which would be left behind: bring it back, or `spillway members remove` it"
	}
	return next
}

// changeDNSSEC takes a step that is an operator's to take.
func (s *Server) changeDNSSEC(ctx context.Context, r admin.DNSSECRequest, actor string) (*admin.DNSSECAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(admin.DNSSECActions(), r.Action) {
		return nil, admin.BadRequest(fmt.Sprintf("there is no %q for DNSSEC", r.Action), "write "+strings.Join(admin.DNSSECActions(), ", "))
	}
	var secret []byte
	if r.Action == consensus.SignEnable || r.Action == consensus.SignRoll {
		if secret, err = newSecret(v.state.Signing); err != nil {
			return nil, err
		}
	}
	if err := s.node.Sign(ctx, r.Action, v.zone.Name, secret, consensus.By{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, refusal(err)
	}
	agreed := s.node.State()
	s.log.Info("how the zone is signed was changed", "action", r.Action, "zone", v.zone.Name, "reason", r.Reason, "actor", actor)
	s.await(ctx, func(v *View) bool { return v.state.Index >= agreed.Index })
	return s.dnssec(ctx)
}

// newSecret makes a key whose tag is none of those in use: resolvers would try both.
func newSecret(g *consensus.Signing) ([]byte, error) {
	for {
		secret, tag, err := dns.NewSecret()
		if err != nil {
			return nil, err
		}
		taken := false
		for i := 0; g != nil && i < len(g.Keys); i++ {
			k, err := dns.NewKey(g.Keys[i].Secret)
			taken = taken || err == nil && k.Tag() == tag
		}
		if !taken {
			return secret, nil
		}
	}
}
