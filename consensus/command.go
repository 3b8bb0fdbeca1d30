package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// kind is the first byte of a command. A number, once released, keeps its meaning for ever: logs outlive programs.
type kind byte

const (
	kindPutSpec     kind = 1
	kindPutPlan     kind = 2
	kindPutDrain    kind = 3
	kindDeleteDrain kind = 4
	kindExpire      kind = 5
	kindRotateKey   kind = 6
	kindNote        kind = 7  // something done outside the log, for the audit
	kindSign        kind = 8  // a change of how the zone is signed, see Signing
	kindStage       kind = 9  // a spec on trial in some regions
	kindEndStage    kind = 10 // the end of a stage that leaves the spec in force as it is
	kindMarkStage   kind = 11
	kindPurgeKeys   kind = 12 // a new ticket key in place of all others

	kindWant kind = kindOptional | 1 // a member is to have a vote, or no longer: see State.Wanted

	// kindOptional marks a command that a node too old to know it may skip without harm.
	kindOptional kind = 0x80
)

// Bounds of what a write may carry.
const (
	MaxBody    = 3 << 20 // MaxBody is the largest spec or plan in bytes: a spec of 10,000 objects has 1.8 MB
	maxCommand = MaxBody/3*4 + 16<<10
	// markSlack is what a leader may add to a command after its length was checked: see markJudged.
	markSlack = 64
	maxName   = 256
	maxReason = 1024
	maxDetail = 8 << 10
	maxID     = 64
)

var errUnknownKind = errors.New("command of a kind this node does not know: it is older than the leader: upgrade it")

// command is one write. Everything that differs between nodes (time, chance, term) is in it, put there by the proposer.
type command struct {
	Kind    kind      `json:"-"`
	ID      string    `json:"id,omitempty"` // idempotency key; empty: a repeat is harmless
	BasedOn uint64    `json:"based_on,omitempty"`
	Term    uint64    `json:"term,omitempty"` // in which a plan was made
	Body    []byte    `json:"body,omitempty"`
	Path    string    `json:"path,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Action  string    `json:"action,omitempty"` // of a note, or what is done to the zone's signing
	Detail  string    `json:"detail,omitempty"` // what differs, for the audit
	At      time.Time `json:"at,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Judged  bool      `json:"judged,omitempty"` // the leader checked the body against what it is based on

	// Of stages. A node too old to know them still takes each spec that comes into force.
	Trial   *Trial        `json:"trial,omitempty"`   // with a spec: it is on trial
	Ends    uint64        `json:"ends,omitempty"`    // the stage that the command ends, or marks
	Replace bool          `json:"replace,omitempty"` // a stage under way ends unpromoted
	Elapsed time.Duration `json:"elapsed,omitempty"` // of a stage's window
}

// noun is what the body of a command is called.
func (k kind) noun() string {
	switch k {
	case kindPutSpec:
		return "spec"
	case kindPutPlan:
		return "plan"
	}
	return "body"
}

// encodeCommand is the kind and then JSON, which later versions may add fields to.
func encodeCommand(c command) ([]byte, error) {
	if err := c.bounded(); err != nil {
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
	case len(b) > maxCommand+markSlack:
		return c, fmt.Errorf("command is longer than %d bytes", maxCommand)
	}
	c.Kind = kind(b[0])
	if (c.Kind < kindPutSpec || c.Kind > kindPurgeKeys) && c.Kind != kindWant {
		return c, errUnknownKind
	}
	if err := json.Unmarshal(b[1:], &c); err != nil {
		return c, fmt.Errorf("decoding command: %w", err)
	}
	c.At, c.Until = c.At.UTC(), c.Until.UTC()
	return c, c.bounded()
}

func (c command) bounded() error {
	switch {
	case len(c.Body) > MaxBody:
		return fmt.Errorf("the %s has %d bytes as it is kept, more than the %d that fit: take out what repeats, or split it over several planets", c.Kind.noun(), len(c.Body), MaxBody)
	case len(c.Path) > maxName || len(c.Actor) > maxName:
		return fmt.Errorf("path and actor may have at most %d bytes", maxName)
	case len(c.Reason) > maxReason:
		return fmt.Errorf("reason may have at most %d bytes", maxReason)
	case len(c.Detail) > maxDetail || len(c.Action) > maxName:
		return fmt.Errorf("what differs may have at most %d bytes, and the action %d", maxDetail, maxName)
	case len(c.ID) > maxID:
		return fmt.Errorf("idempotency key may have at most %d bytes", maxID)
	}
	if c.Trial != nil {
		if err := c.Trial.bounded(); err != nil {
			return err
		}
	}
	for _, t := range []time.Time{c.At, c.Until} {
		if y := t.UTC().Year(); y < 1 || y > 9999 { // beyond that, JSON cannot carry it
			return errors.New("a time lies outside the years 1 to 9999")
		}
	}
	return nil
}
