package consensus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Signing is how the zone is signed, and how far a change of that has come. It is immutable, as all of State. Nothing
// here is ever in a hurry: a step taken late breaks no chain of trust, and one taken early does.
type Signing struct {
	Zone  string // apex
	Phase Phase
	Since time.Time // of the phase, by the clock of who proposed it
	Due   time.Time // when the leader may take the next step; zero: it is an operator's turn
	Keys  []ZoneKey // one, or two during a roll; the first signs answers, all sign the set of keys

	// Held is until when resolvers may hold answers under longer TTLs than those in force, and KeysHeld the set of keys.
	Held, KeysHeld time.Time
	// Gone is when no resolver holds a signature of the second key any more; meaningful while there are two.
	Gone time.Time
}

// Phase is a state of Signing.
type Phase string

// The phases. Those without a Due wait for an operator to have the parent zone changed, and to say so.
const (
	PhaseNew       Phase = "new"       // signed; resolvers may still hold unsigned answers
	PhasePublish   Phase = "publish"   // the parent is to have the key's DS
	PhaseSigned    Phase = "signed"    // the chain stands
	PhaseRolling   Phase = "rolling"   // there is a next key; resolvers may still hold the set of keys without it
	PhaseReplace   Phase = "replace"   // the next key signs answers; the parent is to have its DS in place of the old one's
	PhaseRetiring  Phase = "retiring"  // resolvers may still hold what needs the old key
	PhaseLeaving   Phase = "leaving"   // the parent is to have no DS
	PhaseUnsigning Phase = "unsigning" // resolvers may still hold the DS
)

// What a kindSign command does.
const (
	SignEnable  = "enable"  // start to sign, or go back on SignDisable; its body is a key
	SignRoll    = "roll"    // bring in another key; its body is that
	SignSeen    = "seen"    // the parent shows what it is to have
	SignDisable = "disable" // stop to sign, as soon as that breaks nothing
	signStep    = "step"    // the leader's: what Due was for
)

// Holds is for how long resolvers may hold what a spec has them answered.
type Holds struct {
	Zone    string        // apex
	Answers time.Duration // the longest TTL of an answer
	Keys    time.Duration // the TTL of the set of keys
	Parent  time.Duration // the TTL of DS in the parent zone
	Spread  time.Duration // until every node answers by what is agreed, as much as clocks may differ by included
}

// ZoneKey is a private key of ECDSA P-256 that signs the zone. Its secret is written to no log.
type ZoneKey struct {
	Secret []byte `json:"-"` // the scalar
	At     time.Time
}

// zoneKeySize is the length of a zone key's secret in bytes.
const zoneKeySize = 32

// String hides the secret.
func (k ZoneKey) String() string { return "zone key of " + k.At.Format(time.RFC3339) }

// GoString hides the secret.
func (k ZoneKey) GoString() string { return k.String() }

// LogValue hides the secret.
func (k ZoneKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

func (k ZoneKey) check() error {
	if _, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), k.Secret); err != nil || len(k.Secret) != zoneKeySize {
		return errors.New("that is no private key of ECDSA P-256")
	}
	return nil
}

// Ready reports whether the leader may take the next step.
func (g *Signing) Ready(now time.Time) bool { return g != nil && !g.Due.IsZero() && !now.Before(g.Due) }

// Parent is the key whose DS the parent zone is to have, and false where it is to have none.
func (g *Signing) Parent() (ZoneKey, bool) {
	switch g.Phase {
	case PhaseNew, PhaseLeaving, PhaseUnsigning:
		return ZoneKey{}, false
	}
	return g.Keys[0], true
}

// sign runs a kindSign command.
func (s *State) sign(c command, holds func(spec []byte) Holds) result {
	if s.SpecVersion == 0 {
		return refuse("no spec is in force: there is no zone to sign yet")
	}
	h := held(holds, s.Spec)
	var next *Signing
	var err error
	switch g := s.Signing; {
	case c.Path != h.Zone:
		err = fmt.Errorf("the zone is %s, not %q: look at it again", h.Zone, c.Path)
	case c.Action == SignEnable && g == nil:
		next, err = s.begin(c, h, holds)
	case g == nil:
		err = errors.New("the zone is not signed: spillway dnssec enable")
	default:
		next, err = g.after(c, h)
	}
	if err != nil {
		return refuse("%v", err)
	}
	s.Signing = next
	return result{Code: codeOK}
}

// begin is the first phase of a zone that is not signed. The parent may not be told of it while resolvers hold unsigned
// answers, of the spec in force or of one before it, or keys of a time when it was signed before.
func (s *State) begin(c command, h Holds, holds func(spec []byte) Holds) (*Signing, error) {
	k := ZoneKey{Secret: c.Body, At: c.At}
	if err := k.check(); err != nil {
		return nil, err
	}
	g := &Signing{Zone: h.Zone, Keys: []ZoneKey{k}}
	g.Held, g.KeysHeld = c.At.Add(h.Answers), c.At.Add(h.Keys)
	for i := 1; i < len(s.SpecHistory); i++ {
		g = g.outlive(held(holds, s.SpecHistory[i].Body), s.SpecHistory[i-1].At)
	}
	return g.to(PhaseNew, c.At, later(g.Held, g.KeysHeld).Add(h.Spread)), nil
}

// after is the signing that a command leads to, nil for none, or why it may not.
func (g *Signing) after(c command, h Holds) (*Signing, error) {
	switch c.Action {
	case SignEnable:
		return g.stay(c.At)
	case SignRoll:
		return g.roll(c, h)
	case SignSeen:
		return g.seen(c.At, h)
	case SignDisable:
		return g.leave(c.At)
	case signStep:
		return g.step(c.At, h)
	}
	return nil, fmt.Errorf("nothing is known of %q for a signed zone: this node is older than the one that asks: upgrade it", c.Action)
}

// stay goes back on leaving: answers were signed all the time.
func (g *Signing) stay(at time.Time) (*Signing, error) {
	switch {
	case g.Phase != PhaseLeaving && g.Phase != PhaseUnsigning:
		return nil, errors.New("the zone is signed already")
	case len(g.Keys) > 1:
		return nil, errors.New("it was left in the middle of a roll: let it end, then enable it anew")
	}
	return g.to(PhasePublish, at, time.Time{}), nil
}

// roll brings in the next key. It signs answers only once every resolver that holds the keys holds it too.
func (g *Signing) roll(c command, h Holds) (*Signing, error) {
	if g.Phase != PhaseSigned {
		return nil, fmt.Errorf("a key is rolled from the phase %q, and the zone is in %q: spillway dnssec says what that waits for", PhaseSigned, g.Phase)
	}
	k := ZoneKey{Secret: c.Body, At: c.At}
	if err := k.check(); err != nil {
		return nil, err
	}
	out := g.to(PhaseRolling, c.At, later(g.KeysHeld, c.At.Add(h.Keys)).Add(h.Spread))
	out.Keys = []ZoneKey{g.Keys[0], k}
	return out, nil
}

// seen takes an operator's word for what the parent shows.
func (g *Signing) seen(at time.Time, h Holds) (*Signing, error) {
	switch g.Phase {
	case PhasePublish:
		return g.to(PhaseSigned, at, time.Time{}), nil
	case PhaseReplace:
		return g.to(PhaseRetiring, at, later(g.Gone, at.Add(h.Parent+h.Spread))), nil
	case PhaseLeaving:
		return g.to(PhaseUnsigning, at, at.Add(h.Parent+h.Spread)), nil
	}
	return nil, fmt.Errorf("nothing is awaited of the parent zone in the phase %q: spillway dnssec", g.Phase)
}

// leave begins to end the signing. A zone whose DS nobody was told of ends at once.
func (g *Signing) leave(at time.Time) (*Signing, error) {
	switch g.Phase {
	case PhaseNew:
		return nil, nil
	case PhaseLeaving, PhaseUnsigning:
		return nil, errors.New("that is under way: spillway dnssec says what it waits for")
	}
	return g.to(PhaseLeaving, at, time.Time{}), nil
}

// step is what the leader does when the time has come.
func (g *Signing) step(at time.Time, h Holds) (*Signing, error) {
	if !g.Ready(at) {
		return nil, fmt.Errorf("the phase %q is not over", g.Phase)
	}
	out := g.to(g.Phase, at, time.Time{})
	switch g.Phase {
	case PhaseNew:
		out.Phase = PhasePublish
	case PhaseRolling:
		out.Phase, out.Keys = PhaseReplace, []ZoneKey{g.Keys[1], g.Keys[0]}
		out.Gone = later(g.Held, at.Add(h.Answers)).Add(h.Spread)
	case PhaseRetiring:
		out.Phase, out.Keys, out.Gone = PhaseSigned, g.Keys[:1:1], time.Time{}
	case PhaseUnsigning:
		return nil, nil
	}
	return out, nil
}

// to is a copy in another phase.
func (g *Signing) to(p Phase, at, due time.Time) *Signing {
	out := *g
	out.Phase, out.Since, out.Due = p, at, due
	return &out
}

// outlive is what remains to be waited for when a spec takes the place of another: resolvers keep what the other said.
func (g *Signing) outlive(old Holds, at time.Time) *Signing {
	if g == nil {
		return nil
	}
	out := *g
	out.Held, out.KeysHeld = later(g.Held, at.Add(old.Answers)), later(g.KeysHeld, at.Add(old.Keys))
	return &out
}

// checkZone keeps the zone from being renamed under its signatures, which the new name's parent knows nothing of.
func (g *Signing) checkZone(h Holds) error {
	if g != nil && h.Zone != g.Zone {
		return fmt.Errorf("the zone is signed as %s and cannot become %s: spillway dnssec disable first", g.Zone, h.Zone)
	}
	return nil
}

// check is what apply upholds, of a Signing that was read from a file.
func (g *Signing) check() error {
	if n := len(g.Keys); g.Zone == "" || g.Phase == "" || n < 1 || n > 2 {
		return errors.New("a signed zone has a name, a phase, and one key or two")
	}
	for _, k := range g.Keys {
		if err := k.check(); err != nil {
			return err
		}
	}
	return nil
}

// held asks for a spec's Holds. A spec was judged before it was agreed on, so a panic is the program's mistake; it must
// not end the node all the same.
func held(holds func(spec []byte) Holds, spec []byte) (h Holds) {
	if holds == nil {
		return Holds{}
	}
	defer func() {
		if recover() != nil {
			h = Holds{}
		}
	}()
	return holds(spec)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wireSigning is Signing as it is written, its keys with their secrets.
type wireSigning struct {
	Zone     string    `json:"zone"`
	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since"`
	Due      time.Time `json:"due,omitzero"`
	Held     time.Time `json:"held,omitzero"`
	KeysHeld time.Time `json:"keys_held,omitzero"`
	Gone     time.Time `json:"gone,omitzero"`
	Keys     []wireKey `json:"keys"`
}

func (g *Signing) wire() *wireSigning {
	if g == nil {
		return nil
	}
	w := &wireSigning{Zone: g.Zone, Phase: g.Phase, Since: g.Since, Due: g.Due, Held: g.Held, KeysHeld: g.KeysHeld, Gone: g.Gone}
	for _, k := range g.Keys {
		w.Keys = append(w.Keys, wireKey(k))
	}
	return w
}

func (w *wireSigning) signing() (*Signing, error) {
	if w == nil {
		return nil, nil
	}
	g := &Signing{Zone: w.Zone, Phase: w.Phase, Since: w.Since, Due: w.Due, Held: w.Held, KeysHeld: w.KeysHeld, Gone: w.Gone}
	for _, k := range w.Keys {
		g.Keys = append(g.Keys, ZoneKey{Secret: slices.Clone(k.Secret), At: k.At})
	}
	return g, g.check()
}

// EncodeSigning writes a Signing down with its secrets, for a file that only its owner may read; nil for none.
func EncodeSigning(g *Signing) ([]byte, error) {
	if g == nil {
		return nil, nil
	}
	return json.Marshal(g.wire())
}

// DecodeSigning reads what EncodeSigning wrote.
func DecodeSigning(b []byte) (*Signing, error) {
	if len(b) == 0 {
		return nil, nil
	}
	w := new(wireSigning)
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("decoding the zone's keys: %w", err)
	}
	return w.signing()
}
