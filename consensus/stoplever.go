package consensus

import (
	"strings"
	"time"
)

// StopLever forbids new drains until an operator releases it.
type StopLever struct {
	Reason string    `json:"reason,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	At     time.Time `json:"at,omitzero"` // by the proposing node's clock
}

// Actions of a kindStopLever command.
const (
	actionStopAll = "stop-all"
	actionAllow   = "allow"
)

// changeStopLever pulls or releases the lever. Pulling it also ends the drains of drills.
func (s *State) changeStopLever(c command) commandResult {
	switch c.Action {
	case actionAllow:
		if s.StopLever == nil {
			return newRefusal("drills and drains are allowed already: nothing was changed")
		}
		s.StopLever = nil
	case actionStopAll:
		if strings.TrimSpace(c.Reason) == "" {
			return newRefusal("stop-all needs a reason, which is shown with every refusal: add --reason")
		}
		s.StopLever = &StopLever{Reason: c.Reason, Actor: c.Actor, At: c.At}
		s.Drains = removeDrains(s.Drains, func(d Drain) bool { return d.Drill != "" })
		if s.Switch.IsActive() { // the drain of a switch that is no practice stays: clients must not return unasked
			s.setSwitchStep(SwitchAborted, command{At: c.At, Reason: "stop-all: " + c.Reason})
		}
	default:
		return newRefusal("unknown action %.64q of the stop lever", c.Action)
	}
	return commandResult{Code: codeOK}
}
