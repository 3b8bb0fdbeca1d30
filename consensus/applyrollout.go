package consensus

import (
	"bytes"
	"fmt"
	"strconv"
)

// checkSpecChange is the check of every new spec while another is staged.
func (s *State) checkSpecChange(c command) (commandResult, bool) {
	g := s.Rollout
	switch {
	case c.BasedOn != s.SpecVersion:
		return commandResult{Code: codeConflict, Current: s.SpecVersion}, false
	case c.EndsRollout != 0 && (g == nil || g.Number != c.EndsRollout):
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout), false
	case c.EndsRollout != 0 && !bytes.Equal(g.Body, c.Body):
		return newRefusal("the spec is not that of stage %d: read the stage in progress and try again", c.EndsRollout), false
	case c.EndsRollout == 0 && g != nil && !c.ReplaceRollout:
		return newRefusal("a spec is staged %s (stage %d): promote it, roll it back, or replace it", g.describeRegions(), g.Number), false
	}
	return commandResult{}, true
}

// startRollout stages a spec in some regions, while the one in force stays elsewhere.
func (s *State) startRollout(c command, k stateChecks) commandResult {
	if r, ok := s.checkSpecChange(c); !ok {
		return r
	}
	switch {
	case c.Rollout == nil || len(c.Rollout.Regions) == 0 || c.EndsRollout != 0:
		return newRefusal("the stage names no region")
	case s.SpecVersion == 0:
		return newRefusal("no spec is in force: apply this one instead of staging it")
	}
	if r, ok := runCheck("spec", skipIfChecked(c.PreChecked, k.spec), s.Spec, c.Body); !ok {
		return r
	}
	if s.Signing != nil {
		if err := s.Signing.checkZone(callHoldTimes(k.holdTimes, c.Body)); err != nil {
			return newRefusal("%v", err)
		}
	}
	s.setRollout(c, c.Body)
	return commandResult{Code: codeOK, Value: s.Index}
}

// setRollout starts a stage and replaces any other.
func (s *State) setRollout(c command, body []byte) {
	s.Rollout = &Rollout{RolloutConfig: *c.Rollout, Number: s.Index, Body: body, Actor: c.Actor, Reason: c.Reason, At: c.At}
}

// endRollout ends a stage and leaves the spec in force unchanged: it rolls back a stage in some regions, and makes
// one everywhere permanent. The other ends put a spec and go through putSpec.
func (s *State) endRollout(c command) commandResult {
	if s.Rollout == nil || s.Rollout.Number != c.EndsRollout {
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout)
	}
	s.Rollout = nil
	return commandResult{Code: codeOK, Value: s.SpecVersion}
}

// recordRolloutProgress records the progress of a stage. A report older than the known progress changes nothing.
func (s *State) recordRolloutProgress(c command) commandResult {
	if s.Rollout == nil || s.Rollout.Number != c.EndsRollout {
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout)
	}
	g := *s.Rollout
	g.Elapsed, g.Figures = max(g.Elapsed, c.Elapsed), c.Detail
	s.Rollout = &g
	return commandResult{Code: codeOK}
}

// describeRolloutChange returns the audit's action and subject for a change of a stage.
func (s *State) describeRolloutChange(c command) (action, subject string) {
	spec := "spec " + strconv.FormatUint(s.SpecVersion, 10)
	switch {
	case c.Kind == kindStartRollout:
		return "stage", "spec " + strconv.FormatUint(s.SpecVersion+1, 10) + " " + s.Rollout.describeRegions()
	case c.Kind == kindEndRollout:
		return c.Action, fmt.Sprintf("stage %d: %s stays", c.EndsRollout, spec)
	case c.EndsRollout != 0:
		return c.Action, fmt.Sprintf("stage %d: %s", c.EndsRollout, spec)
	}
	return "apply", spec + " on trial everywhere"
}
