package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// commandKind is the first byte of a command. A released number keeps its meaning for ever: logs outlive programs.
type commandKind byte

const (
	kindPutSpec         commandKind = 1
	kindPutPlan         commandKind = 2
	kindPutDrain        commandKind = 3
	kindDeleteDrain     commandKind = 4
	kindExpireDrains    commandKind = 5
	kindRotateKey       commandKind = 6
	kindAuditNote       commandKind = 7  // an action outside the log, for the audit
	kindChangeSigning   commandKind = 8  // a change of how the zone is signed, see Signing
	kindStartRollout    commandKind = 9  // a staged spec in some regions
	kindEndRollout      commandKind = 10 // the end of a stage that leaves the spec in force unchanged
	kindRolloutProgress commandKind = 11
	kindPurgeKeys       commandKind = 12 // a new ticket key that replaces all others
	kindStopLever       commandKind = 13 // stops all drills and drains, or allows them again
	kindStartSwitch     commandKind = 14 // a planned move of a region's clients
	kindStepSwitch      commandKind = 15

	lastKind = kindStepSwitch

	kindPendingVoter commandKind = kindOptional | 1 // adds or removes a pending voter: see State.PendingVoters

	// kindOptional marks a command that an older node may skip without harm.
	kindOptional commandKind = 0x80
)

// Bounds of the content of a write.
const (
	MaxBody    = 3 << 20 // MaxBody is the largest spec or plan in bytes: a spec of 10,000 objects has 1.8 MB
	maxCommand = MaxBody/3*4 + 16<<10
	// checkedMarkSlack is the length that a leader may add to a command after its length was checked: see
	// markChecked.
	checkedMarkSlack = 64
	maxName          = 256
	maxReason        = 1024
	maxDetail        = 8 << 10
	maxID            = 64
)

var errUnknownKind = errors.New("unknown command: this node is of an earlier release than the leader: upgrade it")

// command is one write. It contains everything that could differ between nodes (time, random bytes, term), set by the
// proposer.
type command struct {
	Kind    commandKind `json:"-"`
	ID      string      `json:"id,omitempty"` // idempotency key; empty: a repeat is harmless
	BasedOn uint64      `json:"based_on,omitempty"`
	Term    uint64      `json:"term,omitempty"` // in which a plan was made
	Body    []byte      `json:"body,omitempty"`
	Path    string      `json:"path,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Actor   string      `json:"actor,omitempty"`
	Action  string      `json:"action,omitempty"` // of a note, or what is done to the zone's signing
	Detail  string      `json:"detail,omitempty"` // what differs, for the audit
	At      time.Time   `json:"at,omitzero"`
	Until   time.Time   `json:"until,omitzero"`

	Over          time.Duration `json:"over,omitempty"`   // duration of the drain; nodes of earlier releases drain at once
	DrainsVersion uint64        `json:"seen,omitempty"`   // drainsVersion that a drain was checked against; 0, and nodes of earlier releases: none
	PreChecked    bool          `json:"judged,omitempty"` // the leader checked the body against what it is based on

	// What a drain's proposer reports for the safety rules, see DrainRules.
	Drill         string       `json:"drill,omitempty"`     // the drill that the drain belongs to
	OverrideRules bool         `json:"override,omitempty"`  // an operator overrides the rules
	Takes         []ModelShare `json:"takes,omitempty"`     // the capacity that the drain takes away
	Unserving     []string     `json:"unserving,omitempty"` // regions that serve no client now, drained or not

	Switch *SwitchConfig `json:"switch,omitempty"` // how a region is switched

	// Fields of stages. A node that is too old for them still applies each spec that comes into force.
	Rollout        *RolloutConfig `json:"trial,omitempty"`   // with a spec: the spec is staged
	EndsRollout    uint64         `json:"ends,omitempty"`    // the stage that the command ends or marks
	ReplaceRollout bool           `json:"replace,omitempty"` // a stage under way ends unpromoted
	Elapsed        time.Duration  `json:"elapsed,omitempty"` // of a stage's window
}

// bodyNoun is the name of a command's body in messages.
func (k commandKind) bodyNoun() string {
	switch k {
	case kindPutSpec:
		return "spec"
	case kindPutPlan:
		return "plan"
	}
	return "body"
}

// encodeCommand returns the kind followed by JSON, to which later versions may add fields.
func encodeCommand(c command) ([]byte, error) {
	if err := c.checkBounds(); err != nil {
		return nil, ErrRefused{Reason: err.Error()}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding command: %w", err)
	}
	return append([]byte{byte(c.Kind)}, text...), nil
}

// decodeCommand never panics and never allocates beyond a small multiple of its input.
func decodeCommand(b []byte) (command, error) {
	var c command
	switch {
	case len(b) == 0:
		return c, errors.New("command is empty")
	case len(b) > maxCommand+checkedMarkSlack:
		return c, fmt.Errorf("command is longer than %d bytes", maxCommand)
	}
	c.Kind = commandKind(b[0])
	if (c.Kind < kindPutSpec || c.Kind > lastKind) && c.Kind != kindPendingVoter {
		return c, errUnknownKind
	}
	if err := json.Unmarshal(b[1:], &c); err != nil {
		return c, fmt.Errorf("decoding command: %w", err)
	}
	c.At, c.Until = c.At.UTC(), c.Until.UTC()
	return c, c.checkBounds()
}

func (c command) checkBounds() error {
	switch {
	case len(c.Body) > MaxBody:
		return fmt.Errorf("the %s has %d bytes encoded, more than the limit of %d: remove repetitions, or split it over several fleets", c.Kind.bodyNoun(), len(c.Body), MaxBody)
	case len(c.Path) > maxName || len(c.Actor) > maxName:
		return fmt.Errorf("path and actor may have at most %d bytes", maxName)
	case len(c.Reason) > maxReason:
		return fmt.Errorf("reason may have at most %d bytes", maxReason)
	case len(c.Detail) > maxDetail || len(c.Action) > maxName:
		return fmt.Errorf("the detail may have at most %d bytes, and the action %d", maxDetail, maxName)
	case len(c.ID) > maxID:
		return fmt.Errorf("idempotency key may have at most %d bytes", maxID)
	}
	if err := checkDrainReport(&c); err != nil {
		return err
	}
	if c.Switch != nil {
		if err := c.Switch.checkBounds(); err != nil {
			return err
		}
	}
	if c.Rollout != nil {
		if err := c.Rollout.checkBounds(); err != nil {
			return err
		}
	}
	for _, t := range []time.Time{c.At, c.Until} {
		if y := t.UTC().Year(); y < 1 || y > 9999 { // JSON cannot represent other years
			return errors.New("a time is outside the years 1 to 9999")
		}
	}
	return nil
}
