package consensus

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// PutSpec replaces the spec, if basedOn is still its version, and returns the new version. The first is based on 0. Its
// errors are ErrConflict, ErrRefused, ErrNoLeader, ErrUnknownOutcome or ErrStopped, as with all writes.
func (n *Node) PutSpec(ctx context.Context, basedOn uint64, body []byte, actor string) (version uint64, err error) {
	return n.ChangeSpec(ctx, basedOn, body, By{Actor: actor}, "")
}

// By is who makes a change, and why.
type By struct {
	Actor, Reason string
}

// ChangeSpec is PutSpec with a reason, and with what differs for the audit, of which at most 8 KiB are kept.
func (n *Node) ChangeSpec(ctx context.Context, basedOn uint64, body []byte, by By, detail string) (version uint64, err error) {
	return n.Change(ctx, Change{BasedOn: basedOn, Body: body, By: by, Detail: detail})
}

// cut stands for the rest of a detail.
const cut = "\n..."

// Note puts something that was done outside the log into the audit.
func (n *Node) Note(ctx context.Context, by By, action, subject string) error {
	c := n.write(kindNote)
	c.Actor, c.Reason, c.Action, c.Path = by.Actor, by.Reason, action, subject
	_, err := n.propose(ctx, c)
	return err
}

// PutPlan replaces the plan, if basedOn is still its epoch and this node still leads in the term in which it proposes.
// Only a leader has a plan to propose: elsewhere it is ErrNotLeader. by and detail go with the plan, see Origin.
func (n *Node) PutPlan(ctx context.Context, basedOn uint64, body []byte, by By, detail string) (epoch uint64, err error) {
	if !n.started.Load() {
		return 0, ErrStopped
	}
	c := n.write(kindPutPlan)
	c.ID, c.Term = "", n.raft.CurrentTerm() // a repeat would only conflict
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Detail = basedOn, body, by.Actor, by.Reason, detail
	if !n.IsLeader() {
		return 0, ErrNotLeader
	}
	data, err := encodeCommand(c)
	if err != nil {
		return 0, err
	}
	r, err := n.try(ctx, data)
	if err == nil {
		err = r.err()
	}
	n.outcome(err)
	return r.Value, err
}

// PutDrain puts a drain in force, in place of an earlier one of the same path.
func (n *Node) PutDrain(ctx context.Context, d Drain) error {
	c := n.write(kindPutDrain)
	c.Path, c.Reason, c.Actor, c.Until = d.Path, d.Reason, d.Actor, d.Until.UTC()
	if !d.At.IsZero() {
		c.At = d.At.UTC()
	}
	_, err := n.propose(ctx, c)
	return err
}

// DeleteDrain ends a drain; ErrRefused when there is none of that path.
func (n *Node) DeleteDrain(ctx context.Context, path string, by By) error {
	c := n.write(kindDeleteDrain)
	c.Path, c.Actor, c.Reason = path, by.Actor, by.Reason
	_, err := n.propose(ctx, c)
	return err
}

// Expire has the leader end the drains whose time has come; elsewhere, and when there are none, it does nothing.
func (n *Node) Expire(ctx context.Context, now time.Time) error {
	if !n.IsLeader() {
		return nil
	}
	for _, d := range n.State().Drains {
		if d.expired(now) {
			c := n.write(kindExpire)
			c.At = now.UTC()
			_, err := n.propose(ctx, c)
			return err
		}
	}
	return nil
}

// RotateTicketKey puts a new random key before the others. Tickets of the two before it still open.
func (n *Node) RotateTicketKey(ctx context.Context) error {
	return n.rotateTicketKey(ctx, kindRotateKey, By{})
}

// ReplaceTicketKeys is RotateTicketKey for an operator. With purge no earlier key stays: tickets on their way are refused.
func (n *Node) ReplaceTicketKeys(ctx context.Context, purge bool, by By) error {
	k := kindRotateKey
	if purge {
		k = kindPurgeKeys
	}
	return n.rotateTicketKey(ctx, k, by)
}

func (n *Node) rotateTicketKey(ctx context.Context, k kind, by By) error {
	c := n.write(k)
	c.Actor, c.Reason = by.Actor, by.Reason
	c.Body = make([]byte, keySize)
	rand.Read(c.Body) // never fails: crypto/rand ends the program instead
	_, err := n.propose(ctx, c)
	return err
}

// Barrier returns when this node, which must lead, has applied everything committed before the call. A new leader calls
// it before it plans.
func (n *Node) Barrier(ctx context.Context) error {
	if !n.IsLeader() {
		return ErrNotLeader
	}
	if err := n.await(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return fmt.Errorf("waiting for the log: %w", err)
	}
	return nil
}

// write starts a command with a time and an idempotency key of its own.
func (n *Node) write(k kind) command {
	return command{Kind: k, ID: rand.Text(), At: time.Now().UTC().Round(0)}
}
