package consensus

import (
	"context"
	"time"
)

// Sign changes how the zone is signed: SignEnable and SignRoll take a new key's secret, the others none. The zone is
// named, so that nobody signs another than was meant. Its errors are those of all writes.
func (n *Node) Sign(ctx context.Context, action, zone string, secret []byte, by By) error {
	c := n.write(kindSign)
	c.Action, c.Path, c.Body, c.Actor, c.Reason = action, zone, secret, by.Actor, by.Reason
	_, err := n.propose(ctx, c)
	return err
}

// StepSigning has the leader take the step that is due, and does nothing where none is. It waits for voters that are
// silent: one that is cut off answers by what it knew, and would be left behind.
func (n *Node) StepSigning(ctx context.Context, now time.Time) error {
	g := n.State().Signing
	if !n.IsLeader() || !g.Ready(now) || len(n.Silent()) > 0 {
		return nil
	}
	c := n.write(kindSign)
	c.Action, c.Path, c.At, c.Actor, c.Reason = signStep, g.Zone, now.UTC().Round(0), n.id, "its time had come in the phase "+string(g.Phase)
	_, err := n.propose(ctx, c)
	return err
}
