package admin

import (
	"fmt"
	"time"
)

const pathSwitch = "/v1/switch"

// SwitchRequest moves the clients of a region to others, in steps that the leader takes, or aborts that.
type SwitchRequest struct {
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`       // the region that must be able to serve the clients
	Practice bool   `json:"practice,omitempty"` // move the clients back after the hold
	OverMS   int64  `json:"over_ms,omitempty"`  // new traffic leaves linearly over this time; 0: at once
	HoldMS   int64  `json:"hold_ms,omitempty"`  // the region stays empty for this time
	Reason   string `json:"reason,omitempty"`

	DryRun         bool `json:"dry_run,omitempty"`         // check, and move nothing
	Force          bool `json:"force,omitempty"`           // move even if too little capacity remains
	OverrideSafety bool `json:"override_safety,omitempty"` // move against the safety rules of the spec; needs a reason
	Abort          bool `json:"abort,omitempty"`           // end the switch in progress: the clients return
}

// checkTimes refuses a switch with invalid durations.
func (r *SwitchRequest) checkTimes() *Error {
	if r.OverMS < 0 || r.HoldMS < 0 || r.OverMS > maxSwitchMS || r.HoldMS > maxSwitchMS {
		return BadRequestError(fmt.Sprintf("a switch over %d ms with a hold of %d ms is out of range", r.OverMS, r.HoldMS), "each takes from 0 to 30 days")
	}
	return nil
}

// maxSwitchMS bounds the times of a switch, in ms.
const maxSwitchMS = int64(30 * 24 * time.Hour / time.Millisecond)

// SwitchAnswer is a switch after the call.
type SwitchAnswer struct {
	Switch *SwitchStatus `json:"switch,omitempty"` // the one in progress, or the last one; absent: none yet
	// Impact is the remaining capacity, and Problems why the switch is refused unless forced. Both are absent in answers
	// to other calls than a start.
	Impact   *DrainImpact `json:"impact,omitempty"`
	Problems []string     `json:"problems,omitempty"`
}

// SwitchStatus is the progress of a region switch.
type SwitchStatus struct {
	Number    uint64    `json:"number"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	Practice  bool      `json:"practice,omitempty"`
	OverMS    int64     `json:"over_ms,omitempty"`
	HoldMS    int64     `json:"hold_ms,omitempty"`
	Step      string    `json:"step"` // shift, verify, drain, hold, back, done or aborted
	StepAt    time.Time `json:"step_at,omitzero"`
	Note      string    `json:"note,omitempty"` // what the last step found
	Active    bool      `json:"active"`
	Drained   bool      `json:"drained"`   // the region is drained
	Remaining float64   `json:"remaining"` // share of new traffic that a drained region still gets
	Actor     string    `json:"actor,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	At        time.Time `json:"at,omitzero"`
}
