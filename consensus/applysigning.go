package consensus

import (
	"errors"
	"fmt"
)

// changeSigning applies a kindChangeSigning command.
func (s *State) changeSigning(c command, holds func(spec []byte) HoldTimes) commandResult {
	if s.SpecVersion == 0 {
		return newRefusal("no spec is in force, so there is no zone to sign: apply a spec first")
	}
	h := callHoldTimes(holds, s.Spec)
	var next *ZoneSigning
	var err error
	switch g := s.Signing; {
	case c.Path != h.Zone:
		err = fmt.Errorf("the zone of the spec is %s, not %q: check the name", h.Zone, c.Path)
	case c.Action == SignEnable && g == nil:
		next, err = s.beginSigning(c, h, holds)
	case g == nil:
		err = errors.New("the zone is not signed: run `spillway dnssec enable` first")
	default:
		next, err = g.applyAction(c, h)
	}
	if err != nil {
		return newRefusal("%v", err)
	}
	s.Signing = next
	return commandResult{Code: codeOK}
}

// beginSigning returns the first phase of an unsigned zone. The DS must not go to the parent while resolvers cache
// unsigned answers, of the spec in force or an earlier one, or keys of an earlier signing.
func (s *State) beginSigning(c command, h HoldTimes, holds func(spec []byte) HoldTimes) (*ZoneSigning, error) {
	k := ZoneKey{Secret: c.Body, At: c.At}
	if err := k.checkKey(); err != nil {
		return nil, err
	}
	g := &ZoneSigning{Zone: h.Zone, Keys: []ZoneKey{k}}
	g.AnswersHeldUntil, g.KeysHeldUntil = c.At.Add(h.AnswerTTL), c.At.Add(h.KeyTTL)
	for i := 1; i < len(s.SpecHistory); i++ {
		g = g.extendHolds(callHoldTimes(holds, s.SpecHistory[i].Body), s.SpecHistory[i-1].At)
	}
	return g.withPhase(PhaseNew, c.At, laterTime(g.AnswersHeldUntil, g.KeysHeldUntil).Add(h.Propagation)), nil
}

// callHoldTimes calls holds for a spec. The spec was checked before it was committed, so a panic is a bug; it must
// still not end the node.
func callHoldTimes(holds func(spec []byte) HoldTimes, spec []byte) (h HoldTimes) {
	if holds == nil {
		return HoldTimes{}
	}
	defer func() {
		if recover() != nil {
			h = HoldTimes{}
		}
	}()
	return holds(spec)
}
