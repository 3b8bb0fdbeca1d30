package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ZoneSigning is the state of the zone's DNSSEC signing. It is immutable, like all of State. No step is urgent: a
// late step breaks no chain of trust, an early one does.
type ZoneSigning struct {
	Zone       string // apex
	Phase      SigningPhase
	PhaseSince time.Time // start of the phase, by the proposer's clock
	StepDueAt  time.Time // when the leader may take the next step; zero: the next step is an operator's
	Keys       []ZoneKey // one, or two during a roll; the first signs answers, all sign the DNSKEY set

	// AnswersHeldUntil is when resolvers have dropped the answers with longer TTLs than those in force. KeysHeldUntil
	// is the same for the DNSKEY set.
	AnswersHeldUntil, KeysHeldUntil time.Time
	// OldKeyHeldUntil is when no resolver caches a signature of the second key any more. It has a meaning while there
	// are two keys.
	OldKeyHeldUntil time.Time
}

// SigningPhase is a phase of ZoneSigning.
type SigningPhase string

// The phases. Those without StepDueAt wait until an operator has changed the parent zone and confirmed it.
const (
	PhaseNew       SigningPhase = "new"       // signed; resolvers may still cache unsigned answers
	PhasePublish   SigningPhase = "publish"   // the key's DS is to be added to the parent
	PhaseSigned    SigningPhase = "signed"    // the chain of trust is complete
	PhaseRolling   SigningPhase = "rolling"   // there is a next key; resolvers may still cache the DNSKEY set without it
	PhaseReplace   SigningPhase = "replace"   // the next key signs answers; in the parent, its DS is to replace the old one
	PhaseRetiring  SigningPhase = "retiring"  // resolvers may still cache what needs the old key
	PhaseLeaving   SigningPhase = "leaving"   // the DS is to be removed from the parent
	PhaseUnsigning SigningPhase = "unsigning" // resolvers may still hold the DS
)

// Actions of a kindChangeSigning command.
const (
	SignEnable    = "enable"  // start signing, or cancel SignDisable; its body is a key
	SignRoll      = "roll"    // add another key; its body is that key
	SignConfirmDS = "seen"    // the parent zone shows the wanted DS
	SignDisable   = "disable" // stop signing, once that breaks nothing
	signStep      = "step"    // by the leader, when StepDueAt is reached
)

// HoldTimes holds how long resolvers may cache the answers of a spec.
type HoldTimes struct {
	Zone        string        // apex
	AnswerTTL   time.Duration // the longest TTL of an answer
	KeyTTL      time.Duration // the TTL of the DNSKEY set
	ParentTTL   time.Duration // the TTL of DS in the parent zone
	Propagation time.Duration // until every node answers from the committed state, including clock differences
}

// IsStepDue reports whether the leader may take the next step.
func (g *ZoneSigning) IsStepDue(now time.Time) bool {
	return g != nil && !g.StepDueAt.IsZero() && !now.Before(g.StepDueAt)
}

// ParentKey returns the key whose DS belongs in the parent zone, and false if there must be none.
func (g *ZoneSigning) ParentKey() (ZoneKey, bool) {
	switch g.Phase {
	case PhaseNew, PhaseLeaving, PhaseUnsigning:
		return ZoneKey{}, false
	}
	return g.Keys[0], true
}

// applyAction returns the ZoneSigning that a command leads to, nil for none, or an error if the command is not
// allowed.
func (g *ZoneSigning) applyAction(c command, h HoldTimes) (*ZoneSigning, error) {
	switch c.Action {
	case SignEnable:
		return g.cancelDisable(c.At)
	case SignRoll:
		return g.beginRoll(c, h)
	case SignConfirmDS:
		return g.confirmDS(c.At, h)
	case SignDisable:
		return g.beginDisable(c.At)
	case signStep:
		return g.advancePhase(c.At, h)
	}
	return nil, fmt.Errorf("unknown action %q for a signed zone: this node is of an earlier release than the proposer: upgrade it", c.Action)
}

// cancelDisable cancels PhaseLeaving: answers have been signed throughout.
func (g *ZoneSigning) cancelDisable(at time.Time) (*ZoneSigning, error) {
	switch {
	case g.Phase != PhaseLeaving && g.Phase != PhaseUnsigning:
		return nil, errors.New("the zone is signed already")
	case len(g.Keys) > 1:
		return nil, errors.New("signing was disabled during a key roll: wait until the zone is unsigned, then enable it again")
	}
	return g.withPhase(PhasePublish, at, time.Time{}), nil
}

// beginRoll adds the next key. It signs answers only once every resolver that caches the DNSKEY set has it.
func (g *ZoneSigning) beginRoll(c command, h HoldTimes) (*ZoneSigning, error) {
	if g.Phase != PhaseSigned {
		return nil, fmt.Errorf("a key roll starts in the phase %q, and the zone is in %q: `spillway dnssec` shows what that phase waits for", PhaseSigned, g.Phase)
	}
	k := ZoneKey{Secret: c.Body, At: c.At}
	if err := k.checkKey(); err != nil {
		return nil, err
	}
	out := g.withPhase(PhaseRolling, c.At, laterTime(g.KeysHeldUntil, c.At.Add(h.KeyTTL)).Add(h.Propagation))
	out.Keys = []ZoneKey{g.Keys[0], k}
	return out, nil
}

// confirmDS records an operator's confirmation of what the parent shows.
func (g *ZoneSigning) confirmDS(at time.Time, h HoldTimes) (*ZoneSigning, error) {
	switch g.Phase {
	case PhasePublish:
		return g.withPhase(PhaseSigned, at, time.Time{}), nil
	case PhaseReplace:
		return g.withPhase(PhaseRetiring, at, laterTime(g.OldKeyHeldUntil, at.Add(h.ParentTTL+h.Propagation))), nil
	case PhaseLeaving:
		return g.withPhase(PhaseUnsigning, at, at.Add(h.ParentTTL+h.Propagation)), nil
	}
	return nil, fmt.Errorf("the phase %q waits for no change of the parent zone: `spillway dnssec` shows what it waits for", g.Phase)
}

// beginDisable starts the end of the signing. A zone whose DS was never published ends at once.
func (g *ZoneSigning) beginDisable(at time.Time) (*ZoneSigning, error) {
	switch g.Phase {
	case PhaseNew:
		return nil, nil
	case PhaseLeaving, PhaseUnsigning:
		return nil, errors.New("disabling is in progress: `spillway dnssec` shows what it waits for")
	}
	return g.withPhase(PhaseLeaving, at, time.Time{}), nil
}

// advancePhase takes the leader's step that is due.
func (g *ZoneSigning) advancePhase(at time.Time, h HoldTimes) (*ZoneSigning, error) {
	if !g.IsStepDue(at) {
		return nil, fmt.Errorf("the phase %q has not ended", g.Phase)
	}
	out := g.withPhase(g.Phase, at, time.Time{})
	switch g.Phase {
	case PhaseNew:
		out.Phase = PhasePublish
	case PhaseRolling:
		out.Phase, out.Keys = PhaseReplace, []ZoneKey{g.Keys[1], g.Keys[0]}
		out.OldKeyHeldUntil = laterTime(g.AnswersHeldUntil, at.Add(h.AnswerTTL)).Add(h.Propagation)
	case PhaseRetiring:
		out.Phase, out.Keys, out.OldKeyHeldUntil = PhaseSigned, g.Keys[:1:1], time.Time{}
	case PhaseUnsigning:
		return nil, nil
	}
	return out, nil
}

// withPhase returns a copy in another phase.
func (g *ZoneSigning) withPhase(p SigningPhase, at, due time.Time) *ZoneSigning {
	out := *g
	out.Phase, out.PhaseSince, out.StepDueAt = p, at, due
	return &out
}

// extendHolds extends the waiting times when a spec replaces another: resolvers cache the answers of the old one.
func (g *ZoneSigning) extendHolds(old HoldTimes, at time.Time) *ZoneSigning {
	if g == nil {
		return nil
	}
	out := *g
	out.AnswersHeldUntil, out.KeysHeldUntil = laterTime(g.AnswersHeldUntil, at.Add(old.AnswerTTL)), laterTime(g.KeysHeldUntil, at.Add(old.KeyTTL))
	return &out
}

// checkZone keeps the zone from being renamed while it is signed: the parent of the new name has no DS for it.
func (g *ZoneSigning) checkZone(h HoldTimes) error {
	if g != nil && h.Zone != g.Zone {
		return fmt.Errorf("the zone is signed as %s and cannot be renamed to %s: run `spillway dnssec disable` first", g.Zone, h.Zone)
	}
	return nil
}

// checkFields checks the invariants that applyEntry maintains, on a ZoneSigning that was read from a file.
func (g *ZoneSigning) checkFields() error {
	if n := len(g.Keys); g.Zone == "" || g.Phase == "" || n < 1 || n > 2 {
		return errors.New("a signed zone must have a name, a phase, and one or two keys")
	}
	for _, k := range g.Keys {
		if err := k.checkKey(); err != nil {
			return err
		}
	}
	return nil
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wireSigning is the stored form of ZoneSigning, its keys with their secrets.
type wireSigning struct {
	Zone             string       `json:"zone"`
	Phase            SigningPhase `json:"phase"`
	PhaseSince       time.Time    `json:"since"`
	StepDueAt        time.Time    `json:"due,omitzero"`
	AnswersHeldUntil time.Time    `json:"held,omitzero"`
	KeysHeldUntil    time.Time    `json:"keys_held,omitzero"`
	OldKeyHeldUntil  time.Time    `json:"gone,omitzero"`
	Keys             []wireKey    `json:"keys"`
}

func (g *ZoneSigning) toWire() *wireSigning {
	if g == nil {
		return nil
	}
	w := &wireSigning{Zone: g.Zone, Phase: g.Phase, PhaseSince: g.PhaseSince, StepDueAt: g.StepDueAt, AnswersHeldUntil: g.AnswersHeldUntil, KeysHeldUntil: g.KeysHeldUntil, OldKeyHeldUntil: g.OldKeyHeldUntil}
	for _, k := range g.Keys {
		w.Keys = append(w.Keys, wireKey(k))
	}
	return w
}

func (w *wireSigning) toSigning() (*ZoneSigning, error) {
	if w == nil {
		return nil, nil
	}
	g := &ZoneSigning{Zone: w.Zone, Phase: w.Phase, PhaseSince: w.PhaseSince, StepDueAt: w.StepDueAt, AnswersHeldUntil: w.AnswersHeldUntil, KeysHeldUntil: w.KeysHeldUntil, OldKeyHeldUntil: w.OldKeyHeldUntil}
	for _, k := range w.Keys {
		g.Keys = append(g.Keys, ZoneKey{Secret: slices.Clone(k.Secret), At: k.At})
	}
	return g, g.checkFields()
}

// EncodeSigning encodes a ZoneSigning with its secrets, for a file that only its owner may read; nil for none.
func EncodeSigning(g *ZoneSigning) ([]byte, error) {
	if g == nil {
		return nil, nil
	}
	return json.Marshal(g.toWire())
}

// DecodeSigning decodes the result of EncodeSigning.
func DecodeSigning(b []byte) (*ZoneSigning, error) {
	if len(b) == 0 {
		return nil, nil
	}
	w := new(wireSigning)
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("decoding the zone's keys: %w", err)
	}
	return w.toSigning()
}
