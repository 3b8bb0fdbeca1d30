package consensus

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// stateWriter makes the writes that callers ask for.
type stateWriter struct {
	id           string
	proposer     *proposer
	applied      *appliedState
	isLeader     func() bool
	currentTerm  func() uint64
	awaitBarrier func(ctx context.Context) error // on the leader
	silentVoters func() []SilentVoter
}

// PutSpec replaces the spec if basedOn is still its version, and returns the new version. The first is based on 0.
// Its errors are ErrConflict, ErrRefused, ErrNoLeader, ErrUnknownOutcome or ErrStopped, as with all writes.
func (w *stateWriter) PutSpec(ctx context.Context, basedOn uint64, body []byte, actor string) (version uint64, err error) {
	return w.PutSpecWithReason(ctx, basedOn, body, Attribution{Actor: actor}, "")
}

// Attribution names the author and the reason of a change.
type Attribution struct {
	Actor, Reason string
}

// PutSpecWithReason is PutSpec with a reason, and with the difference for the audit, of which at most 8 KiB are kept.
func (w *stateWriter) PutSpecWithReason(ctx context.Context, basedOn uint64, body []byte, by Attribution, detail string) (version uint64, err error) {
	return w.PutSpecChange(ctx, SpecChange{BasedOn: basedOn, Body: body, By: by, Detail: detail})
}

// cutMark replaces the cut end of a detail.
const cutMark = "\n..."

// RecordAudit adds an action outside the log to the audit.
func (w *stateWriter) RecordAudit(ctx context.Context, by Attribution, action, subject string) error {
	c := newCommand(kindAuditNote)
	c.Actor, c.Reason, c.Action, c.Path = by.Actor, by.Reason, action, subject
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// PutPlan replaces the plan if basedOn is still its epoch and this node is still the leader of the term in which it
// proposes. Only a leader has a plan to propose: elsewhere the error is ErrNotLeader. by and detail are stored with
// the plan, see PlanOrigin.
func (w *stateWriter) PutPlan(ctx context.Context, basedOn uint64, body []byte, by Attribution, detail string) (epoch uint64, err error) {
	if !w.proposer.running() {
		return 0, ErrStopped
	}
	c := newCommand(kindPutPlan)
	c.ID, c.Term = "", w.currentTerm() // a repeat would only conflict
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Detail = basedOn, body, by.Actor, by.Reason, detail
	if !w.isLeader() {
		return 0, ErrNotLeader
	}
	data, err := encodeCommand(c)
	if err != nil {
		return 0, err
	}
	r, err := w.proposer.proposeOnce(ctx, data)
	if err == nil {
		err = r.toError()
	}
	w.proposer.reportOutcome(err)
	return r.Value, err
}

// PutDrain puts a drain in force and replaces an earlier one of the same path.
func (w *stateWriter) PutDrain(ctx context.Context, d Drain) error {
	return w.ProposeDrain(ctx, DrainProposal{Drain: d})
}

// DrainProposal is a drain with what its proposer reports for the safety rules.
type DrainProposal struct {
	Drain
	IfUnchanged   bool     // propose only if the drains in force are still Before; otherwise ErrConflict
	Before        []Drain  // the drains that the proposer checked against
	Unserving     []string // regions that serve no client now
	OverrideRules bool     // an operator overrides the safety rules
}

// PutDrainIfUnchanged is PutDrain if the drains are still equal to before; otherwise it returns ErrConflict.
func (w *stateWriter) PutDrainIfUnchanged(ctx context.Context, d Drain, before []Drain) error {
	return w.ProposeDrain(ctx, DrainProposal{Drain: d, IfUnchanged: true, Before: before})
}

// ProposeDrain puts a drain in force if the safety rules allow it when its entry is applied; otherwise it returns
// ErrRefused.
func (w *stateWriter) ProposeDrain(ctx context.Context, p DrainProposal) error {
	c := p.toCommand()
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

func (p *DrainProposal) toCommand() command {
	c := newCommand(kindPutDrain)
	c.Path, c.Reason, c.Actor, c.Until = p.Path, p.Reason, p.Actor, p.Until.UTC()
	c.Over, c.Drill, c.Takes, c.Unserving, c.OverrideRules = p.Over, p.Drill, p.Takes, p.Unserving, p.OverrideRules
	if p.IfUnchanged {
		c.DrainsVersion = drainsVersion(p.Before)
	}
	if !p.At.IsZero() {
		c.At = p.At.UTC()
	}
	return c
}

// CheckDrainRules returns the safety rule that would refuse a drain now; nil: none. It changes nothing.
func CheckDrainRules(s *State, p DrainProposal, r DrainRules) error {
	return checkDrainRules(s, p.toCommand(), r)
}

// SetStopLever pulls the lever, which ends the drains of drills and forbids new drains, or releases it.
func (w *stateWriter) SetStopLever(ctx context.Context, stop bool, by Attribution) error {
	c := newCommand(kindStopLever)
	c.Action, c.Actor, c.Reason = actionAllow, by.Actor, by.Reason
	if stop {
		c.Action = actionStopAll
	}
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// DeleteDrain ends a drain; ErrRefused when there is none of that path.
func (w *stateWriter) DeleteDrain(ctx context.Context, path string, by Attribution) error {
	c := newCommand(kindDeleteDrain)
	c.Path, c.Actor, c.Reason = path, by.Actor, by.Reason
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// ExpireDrains ends the drains whose time has passed. It acts only on the leader.
func (w *stateWriter) ExpireDrains(ctx context.Context, now time.Time) error {
	if !w.isLeader() {
		return nil
	}
	for _, d := range w.applied.State().Drains {
		if d.hasExpired(now) {
			c := newCommand(kindExpireDrains)
			c.At = now.UTC()
			_, err := w.proposer.proposeCommand(ctx, c)
			return err
		}
	}
	return nil
}

// RotateTicketKey adds a new random key as the first. Tickets of the two keys before it stay valid.
func (w *stateWriter) RotateTicketKey(ctx context.Context) error {
	return w.proposeTicketKey(ctx, kindRotateKey, Attribution{})
}

// ReplaceTicketKeys is RotateTicketKey for an operator. With purge all earlier keys are dropped, and tickets in
// transit are refused.
func (w *stateWriter) ReplaceTicketKeys(ctx context.Context, purge bool, by Attribution) error {
	k := kindRotateKey
	if purge {
		k = kindPurgeKeys
	}
	return w.proposeTicketKey(ctx, k, by)
}

func (w *stateWriter) proposeTicketKey(ctx context.Context, k commandKind, by Attribution) error {
	c := newCommand(k)
	c.Actor, c.Reason = by.Actor, by.Reason
	c.Body = make([]byte, ticketKeySize)
	rand.Read(c.Body) // never fails: crypto/rand ends the program instead
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// AwaitBarrier returns when this node, which must be the leader, has applied everything committed before the call. A
// new leader calls it before it plans.
func (w *stateWriter) AwaitBarrier(ctx context.Context) error {
	if !w.isLeader() {
		return ErrNotLeader
	}
	return w.awaitBarrier(ctx)
}

// newCommand returns a command with a time and a new idempotency key.
func newCommand(k commandKind) command {
	return command{Kind: k, ID: rand.Text(), At: time.Now().UTC().Round(0)}
}

// ChangeSigning changes how the zone is signed. SignEnable and SignRoll take the secret of a new key, the other
// actions none. The zone is named so that no other zone is signed by mistake. Its errors are those of all writes.
func (w *stateWriter) ChangeSigning(ctx context.Context, action, zone string, secret []byte, by Attribution) error {
	c := newCommand(kindChangeSigning)
	c.Action, c.Path, c.Body, c.Actor, c.Reason = action, zone, secret, by.Actor, by.Reason
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// AdvanceSigning takes the step that is due, on the leader only. It does nothing when none is due. It waits for
// silent voters: an isolated node answers from its old state and would be left behind.
func (w *stateWriter) AdvanceSigning(ctx context.Context, now time.Time) error {
	g := w.applied.State().Signing
	if !w.isLeader() || !g.IsStepDue(now) || len(w.silentVoters()) > 0 {
		return nil
	}
	c := newCommand(kindChangeSigning)
	c.Action, c.Path, c.At, c.Actor, c.Reason = signStep, g.Zone, now.UTC().Round(0), w.id, "the waiting time of phase "+string(g.Phase)+" has passed"
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
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
func (w *stateWriter) PutSpecChange(ctx context.Context, x SpecChange) (number uint64, err error) {
	c := newCommand(kindPutSpec)
	if x.Rollout != nil && len(x.Rollout.Regions) > 0 {
		c.Kind = kindStartRollout
	}
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Rollout, c.ReplaceRollout = x.BasedOn, x.Body, x.By.Actor, x.By.Reason, x.Rollout, x.ReplaceRollout
	c.Detail = truncateDetail(x.Detail)
	r, err := w.proposer.proposeCommand(ctx, c)
	return r.Value, err
}

// EndRollout promotes the staged spec or rolls it back, and returns the version that is then in force.
func (w *stateWriter) EndRollout(ctx context.Context, number uint64, promote bool, by Attribution, detail string) (version uint64, err error) {
	s := w.applied.State()
	g := s.Rollout
	if g == nil || g.Number != number {
		return 0, ErrRefused{Reason: fmt.Sprintf("stage %d has ended: `spillway audit` shows how", number)}
	}
	c := newCommand(kindEndRollout)
	if promote != g.IsEverywhere() { // one spec replaces another, and the version rises: SOA serials never go back
		c.Kind, c.BasedOn, c.Body = kindPutSpec, s.SpecVersion, g.Body
	}
	c.Action = "rollback"
	if promote {
		c.Action = "promote"
	}
	c.EndsRollout, c.Actor, c.Reason, c.Detail = number, by.Actor, by.Reason, truncateDetail(detail)
	r, err := w.proposer.proposeCommand(ctx, c)
	return r.Value, err
}

// RecordRolloutProgress records the elapsed part of a stage's window and the measurements, so that another leader
// continues from there. Only the leader has them: elsewhere the error is ErrNotLeader.
func (w *stateWriter) RecordRolloutProgress(ctx context.Context, number uint64, elapsed time.Duration, figures string) error {
	if !w.isLeader() {
		return ErrNotLeader
	}
	c := newCommand(kindRolloutProgress)
	c.ID, c.EndsRollout, c.Elapsed, c.Detail = "", number, elapsed, truncateDetail(figures) // a repeat is harmless
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}

// truncateReason shortens a reason to the allowed length.
func truncateReason(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

// truncateDetail shortens a detail to the allowed length.
func truncateDetail(detail string) string {
	if len(detail) <= maxDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:maxDetail-len(cutMark)], "") + cutMark
}
