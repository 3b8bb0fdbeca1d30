package consensus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

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
