package consensus

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// PutSpec replaces the spec if basedOn is still its version, and returns the new version. The first is based on 0.
// Its errors are ErrConflict, ErrRefused, ErrNoLeader, ErrUnknownOutcome or ErrStopped, as with all writes.
func (n *Node) PutSpec(ctx context.Context, basedOn uint64, body []byte, actor string) (version uint64, err error) {
	return n.PutSpecWithReason(ctx, basedOn, body, Attribution{Actor: actor}, "")
}

// Attribution names the author and the reason of a change.
type Attribution struct {
	Actor, Reason string
}

// PutSpecWithReason is PutSpec with a reason, and with the difference for the audit, of which at most 8 KiB are kept.
func (n *Node) PutSpecWithReason(ctx context.Context, basedOn uint64, body []byte, by Attribution, detail string) (version uint64, err error) {
	return n.PutSpecChange(ctx, SpecChange{BasedOn: basedOn, Body: body, By: by, Detail: detail})
}

// cutMark replaces the cut end of a detail.
const cutMark = "\n..."

// RecordAudit adds an action outside the log to the audit.
func (n *Node) RecordAudit(ctx context.Context, by Attribution, action, subject string) error {
	c := n.newCommand(kindAuditNote)
	c.Actor, c.Reason, c.Action, c.Path = by.Actor, by.Reason, action, subject
	_, err := n.proposeCommand(ctx, c)
	return err
}

// PutPlan replaces the plan if basedOn is still its epoch and this node is still the leader of the term in which it
// proposes. Only a leader has a plan to propose: elsewhere the error is ErrNotLeader. by and detail are stored with
// the plan, see PlanOrigin.
func (n *Node) PutPlan(ctx context.Context, basedOn uint64, body []byte, by Attribution, detail string) (epoch uint64, err error) {
	if !n.started.Load() {
		return 0, ErrStopped
	}
	c := n.newCommand(kindPutPlan)
	c.ID, c.Term = "", n.raft.CurrentTerm() // a repeat would only conflict
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Detail = basedOn, body, by.Actor, by.Reason, detail
	if !n.IsLeader() {
		return 0, ErrNotLeader
	}
	data, err := encodeCommand(c)
	if err != nil {
		return 0, err
	}
	r, err := n.proposeOnce(ctx, data)
	if err == nil {
		err = r.toError()
	}
	n.reportOutcome(err)
	return r.Value, err
}

// PutDrain puts a drain in force and replaces an earlier one of the same path.
func (n *Node) PutDrain(ctx context.Context, d Drain) error {
	return n.proposeDrain(ctx, d, 0)
}

// PutDrainIfUnchanged is PutDrain if the drains are still equal to before; otherwise it returns ErrConflict.
func (n *Node) PutDrainIfUnchanged(ctx context.Context, d Drain, before []Drain) error {
	return n.proposeDrain(ctx, d, drainsVersion(before))
}

func (n *Node) proposeDrain(ctx context.Context, d Drain, seen uint64) error {
	c := n.newCommand(kindPutDrain)
	c.Path, c.Reason, c.Actor, c.Until = d.Path, d.Reason, d.Actor, d.Until.UTC()
	c.Over, c.DrainsVersion = d.Over, seen
	if !d.At.IsZero() {
		c.At = d.At.UTC()
	}
	_, err := n.proposeCommand(ctx, c)
	return err
}

// DeleteDrain ends a drain; ErrRefused when there is none of that path.
func (n *Node) DeleteDrain(ctx context.Context, path string, by Attribution) error {
	c := n.newCommand(kindDeleteDrain)
	c.Path, c.Actor, c.Reason = path, by.Actor, by.Reason
	_, err := n.proposeCommand(ctx, c)
	return err
}

// ExpireDrains ends the drains whose time has passed. It acts only on the leader.
func (n *Node) ExpireDrains(ctx context.Context, now time.Time) error {
	if !n.IsLeader() {
		return nil
	}
	for _, d := range n.State().Drains {
		if d.hasExpired(now) {
			c := n.newCommand(kindExpireDrains)
			c.At = now.UTC()
			_, err := n.proposeCommand(ctx, c)
			return err
		}
	}
	return nil
}

// RotateTicketKey adds a new random key as the first. Tickets of the two keys before it stay valid.
func (n *Node) RotateTicketKey(ctx context.Context) error {
	return n.proposeTicketKey(ctx, kindRotateKey, Attribution{})
}

// ReplaceTicketKeys is RotateTicketKey for an operator. With purge all earlier keys are dropped, and tickets in
// transit are refused.
func (n *Node) ReplaceTicketKeys(ctx context.Context, purge bool, by Attribution) error {
	k := kindRotateKey
	if purge {
		k = kindPurgeKeys
	}
	return n.proposeTicketKey(ctx, k, by)
}

func (n *Node) proposeTicketKey(ctx context.Context, k commandKind, by Attribution) error {
	c := n.newCommand(k)
	c.Actor, c.Reason = by.Actor, by.Reason
	c.Body = make([]byte, ticketKeySize)
	rand.Read(c.Body) // never fails: crypto/rand ends the program instead
	_, err := n.proposeCommand(ctx, c)
	return err
}

// AwaitBarrier returns when this node, which must be the leader, has applied everything committed before the call. A
// new leader calls it before it plans.
func (n *Node) AwaitBarrier(ctx context.Context) error {
	if !n.IsLeader() {
		return ErrNotLeader
	}
	if err := n.awaitFuture(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return fmt.Errorf("waiting for the log: %w", err)
	}
	return nil
}

// newCommand returns a command with a time and a new idempotency key.
func (n *Node) newCommand(k commandKind) command {
	return command{Kind: k, ID: rand.Text(), At: time.Now().UTC().Round(0)}
}
