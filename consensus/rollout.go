package consensus

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRolloutRegions is the most regions that a stage may name.
const maxRolloutRegions = 64

// RolloutConfig says how a spec is staged before it becomes permanent.
type RolloutConfig struct {
	// Regions lists the regions in which the staged spec is in force, in ascending order; none: everywhere.
	Regions []string `json:"regions,omitempty"`
	// Conditions says what rolls the spec back. It is opaque to this package.
	Conditions string `json:"guard,omitempty"`
	// Window is how long the stage lasts; 0: until an operator ends it.
	Window time.Duration `json:"window,omitempty"`
}

// Rollout is a staged spec. There is at most one.
type Rollout struct {
	RolloutConfig
	// Number is the raft index of the command that started it: no two stages share one.
	Number uint64 `json:"number"`
	// Body is the candidate, which replaces the spec in force when it is promoted. For a stage everywhere the
	// candidate is already in force, and Body is the spec to roll back to.
	Body []byte `json:"body"`
	// Elapsed is the part of the window that has passed, as counted by the leaders: it depends on no node's wall
	// clock.
	Elapsed time.Duration `json:"elapsed,omitempty"`
	// Figures are the leader's last measurements. They are opaque to this package.
	Figures string    `json:"figures,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // by the proposing node's clock; for people
}

// IsEverywhere reports whether the candidate is in force in all regions, and Body is the previous spec.
func (g *Rollout) IsEverywhere() bool { return len(g.Regions) == 0 }

// IncludesRegion reports whether a region uses the candidate while others do not.
func (g *Rollout) IncludesRegion(region string) bool { return slices.Contains(g.Regions, region) }

// describeRegions is the subject of an audit record.
func (g *Rollout) describeRegions() string {
	if g.IsEverywhere() {
		return "everywhere"
	}
	if more := len(g.Regions) - maxAuditRegions; more > 0 {
		return fmt.Sprintf("in %s and %d more", strings.Join(g.Regions[:maxAuditRegions], ", "), more)
	}
	return "in " + strings.Join(g.Regions, ", ")
}

// maxAuditRegions is how many regions an audit record names.
const maxAuditRegions = 8

func (t *RolloutConfig) checkBounds() error {
	switch {
	case len(t.Regions) > maxRolloutRegions:
		return fmt.Errorf("a spec may be staged in at most %d regions", maxRolloutRegions)
	case len(t.Conditions) > maxReason:
		return fmt.Errorf("guard may have at most %d bytes", maxReason)
	case t.Window < 0:
		return fmt.Errorf("a stage cannot last %s", t.Window)
	}
	for i, name := range t.Regions {
		if name == "" || len(name) > maxName || i > 0 && t.Regions[i-1] >= name {
			return fmt.Errorf("regions of a stage must have names and be in order, each once: %.64q", name)
		}
	}
	return nil
}

// checkSpecChange is the check of every new spec while another is staged.
func (s *State) checkSpecChange(c command) (commandResult, bool) {
	g := s.Rollout
	switch {
	case c.BasedOn != s.SpecVersion:
		return commandResult{Code: codeConflict, Current: s.SpecVersion}, false
	case c.EndsRollout != 0 && (g == nil || g.Number != c.EndsRollout):
		return newRefusal("stage %d has ended: the audit shows how", c.EndsRollout), false
	case c.EndsRollout != 0 && !bytes.Equal(g.Body, c.Body):
		return newRefusal("stage %d holds another spec", c.EndsRollout), false
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
		return newRefusal("a stage needs a region")
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
		return newRefusal("stage %d has ended: the audit shows how", c.EndsRollout)
	}
	s.Rollout = nil
	return commandResult{Code: codeOK, Value: s.SpecVersion}
}

// recordRolloutProgress records the progress of a stage. A report older than the known progress changes nothing.
func (s *State) recordRolloutProgress(c command) commandResult {
	if s.Rollout == nil || s.Rollout.Number != c.EndsRollout {
		return newRefusal("stage %d is over already", c.EndsRollout)
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

func (g *Rollout) checkFields() error {
	if g == nil {
		return nil
	}
	if g.Number == 0 || len(g.Body) == 0 || g.Elapsed < 0 {
		return fmt.Errorf("stage %d has no number, no spec, or has lasted %s", g.Number, g.Elapsed)
	}
	return g.RolloutConfig.checkBounds()
}

// SpecChange is a new spec with the way in which it comes into force.
type SpecChange struct {
	BasedOn        uint64 // the version in force on which it is based
	Body           []byte
	By             Attribution
	Detail         string         // what differs, for the audit; at most 8 KiB are kept
	Rollout        *RolloutConfig // nil: it is in force at once and permanently
	ReplaceRollout bool           // end a stage that is in progress
}

// PutSpecChange puts a spec in force, or stages it. number is the new version, or that of a stage in some regions.
func (n *Node) PutSpecChange(ctx context.Context, x SpecChange) (number uint64, err error) {
	c := n.newCommand(kindPutSpec)
	if x.Rollout != nil && len(x.Rollout.Regions) > 0 {
		c.Kind = kindStartRollout
	}
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Rollout, c.ReplaceRollout = x.BasedOn, x.Body, x.By.Actor, x.By.Reason, x.Rollout, x.ReplaceRollout
	c.Detail = truncateDetail(x.Detail)
	r, err := n.proposeCommand(ctx, c)
	return r.Value, err
}

// EndRollout promotes the staged spec or rolls it back, and returns the version that is then in force.
func (n *Node) EndRollout(ctx context.Context, number uint64, promote bool, by Attribution, detail string) (version uint64, err error) {
	s := n.State()
	g := s.Rollout
	if g == nil || g.Number != number {
		return 0, ErrRefused{Reason: fmt.Sprintf("stage %d has ended: the audit shows how", number)}
	}
	c := n.newCommand(kindEndRollout)
	if promote != g.IsEverywhere() { // one spec replaces another, and the version rises: SOA serials never go back
		c.Kind, c.BasedOn, c.Body = kindPutSpec, s.SpecVersion, g.Body
	}
	c.Action = "rollback"
	if promote {
		c.Action = "promote"
	}
	c.EndsRollout, c.Actor, c.Reason, c.Detail = number, by.Actor, by.Reason, truncateDetail(detail)
	r, err := n.proposeCommand(ctx, c)
	return r.Value, err
}

// RecordRolloutProgress records the elapsed part of a stage's window and the measurements, so that another leader
// continues from there. Only the leader has them: elsewhere the error is ErrNotLeader.
func (n *Node) RecordRolloutProgress(ctx context.Context, number uint64, elapsed time.Duration, figures string) error {
	if !n.IsLeader() {
		return ErrNotLeader
	}
	c := n.newCommand(kindRolloutProgress)
	c.ID, c.EndsRollout, c.Elapsed, c.Detail = "", number, elapsed, truncateDetail(figures) // a repeat is harmless
	_, err := n.proposeCommand(ctx, c)
	return err
}

// truncateDetail shortens a detail to the allowed length.
func truncateDetail(detail string) string {
	if len(detail) <= maxDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:maxDetail-len(cutMark)], "") + cutMark
}
