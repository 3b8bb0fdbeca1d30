package consensus

import (
	"context"
	"time"
)

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
