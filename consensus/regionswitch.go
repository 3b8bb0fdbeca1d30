package consensus

import (
	"fmt"
	"slices"
	"time"
)

// RegionSwitch is a planned move of the clients of one region. There is at most one in progress; the last one stays in
// the state, for its status. Its drain and its progress change in the same entries, so another leader continues from
// any step.
type RegionSwitch struct {
	SwitchConfig
	Number uint64        `json:"number"` // raft index of the command that started it
	From   string        `json:"from"`   // the region that clients leave
	Over   time.Duration `json:"over,omitempty"`
	Step   SwitchStep    `json:"step"`
	StepAt time.Time     `json:"step_at,omitzero"` // start of the step, by the proposing node's clock
	Note   string        `json:"note,omitempty"`   // what the last step found
	Actor  string        `json:"actor,omitempty"`
	Reason string        `json:"reason,omitempty"`
	At     time.Time     `json:"at,omitzero"` // by the proposing node's clock
}

// SwitchConfig says how a region is switched.
type SwitchConfig struct {
	To string `json:"to"` // the region that must be able to serve the clients
	// Practice moves the clients back after Hold, and makes the switch a drill: see checkDrillRules.
	Practice bool          `json:"practice,omitempty"`
	Hold     time.Duration `json:"hold,omitempty"` // how long the region stays empty before the switch is done or moves back
}

// SwitchStep is a step of a RegionSwitch.
type SwitchStep string

// The steps, in their order. A switch may be aborted at each but the last two.
const (
	SwitchShift   SwitchStep = "shift"   // new clients leave over RegionSwitch.Over
	SwitchVerify  SwitchStep = "verify"  // the target's state and this fleet's answers are checked
	SwitchDrain   SwitchStep = "drain"   // running requests finish
	SwitchHold    SwitchStep = "hold"    // the region is empty
	SwitchBack    SwitchStep = "back"    // a practice only: the drain has ended, and clients return
	SwitchDone    SwitchStep = "done"    // the region stays drained, or after a practice has its clients again
	SwitchAborted SwitchStep = "aborted" // the drain has ended, unless stop-all ended a switch that is no practice
)

// IsActive reports whether a switch is in progress.
func (g *RegionSwitch) IsActive() bool {
	return g != nil && g.Step != SwitchDone && g.Step != SwitchAborted
}

// DrillName is the drill that the drain of a practice belongs to; empty if the switch is no practice.
func (g *RegionSwitch) DrillName() string {
	if !g.Practice {
		return ""
	}
	return "switch-" + g.From
}

// mayFollow reports whether a step may follow the present one.
func (g *RegionSwitch) mayFollow(next SwitchStep) bool {
	order := []SwitchStep{SwitchShift, SwitchVerify, SwitchDrain, SwitchHold, SwitchDone}
	if g.Practice {
		order = []SwitchStep{SwitchShift, SwitchVerify, SwitchDrain, SwitchHold, SwitchBack, SwitchDone}
	}
	at := slices.Index(order, g.Step)
	return g.IsActive() && (next == SwitchAborted || order[at+1] == next)
}

// describeSwitch returns the subject of an audit record.
func (g *RegionSwitch) describeSwitch() string {
	text := g.From + " to " + g.To
	if g.Practice {
		text += " (practice)"
	}
	return text
}

// checkFields checks a switch from a snapshot or a command.
func (g *RegionSwitch) checkFields() error {
	if g == nil {
		return nil
	}
	if g.Number == 0 || g.From == "" || g.Step == "" || g.Over < 0 {
		return fmt.Errorf("the switch %d is malformed: it has no number, region or step", g.Number)
	}
	return g.SwitchConfig.checkBounds()
}

func (c *SwitchConfig) checkBounds() error {
	if c.To == "" || len(c.To) > maxName || c.Hold < 0 {
		return fmt.Errorf("a switch needs a region to move to, and a hold of zero or more: %.64q, %s", c.To, c.Hold)
	}
	return nil
}
