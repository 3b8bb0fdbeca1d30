package consensus

import (
	"context"
	"encoding/json"
	"fmt"
)

// Member is one node of the cluster.
type Member struct {
	ID   string
	Addr string // host and port, where this node would reach it
	// Voter is false for a node that follows the log and answers from it without counting toward a majority.
	Voter bool
	// Leader is set if this node sees the member as the leader.
	Leader bool
}

// memberWriter sends changes of the membership to the leader.
type memberWriter struct {
	proposer    *proposer
	isMember    func(id string) bool
	recordAudit func(ctx context.Context, by Attribution, action, subject string) error
}

// AddMember adds a node, or changes the address or the vote of a member. A new voter must be running, with
// Config.Join. It follows first and gets its vote when it has caught up. If that takes more than seven seconds the
// error is ErrRefused, and the leader grants the vote after the node has kept up for ten seconds.
func (w *memberWriter) AddMember(ctx context.Context, p RaftPeer, voter bool, by Attribution) error {
	return w.changeMembership(ctx, membershipChange{Op: "add", ID: p.ID, Addr: p.Addr, Voter: voter}, by)
}

// RemoveMember removes a node from the cluster. The node answers from its last state until it is stopped.
func (w *memberWriter) RemoveMember(ctx context.Context, id string, by Attribution) error {
	return w.changeMembership(ctx, membershipChange{Op: "remove", ID: id}, by)
}

// TransferLeadership hands leadership to a voter; "" means the most up-to-date one.
func (w *memberWriter) TransferLeadership(ctx context.Context, to string, by Attribution) error {
	return w.changeMembership(ctx, membershipChange{Op: "lead", ID: to}, by)
}

// changeMembership makes the leader change the membership, and adds the change to the audit.
func (w *memberWriter) changeMembership(ctx context.Context, m membershipChange, by Attribution) error {
	if err := m.checkFields(); err != nil {
		return ErrRefused{Reason: err.Error()}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	known := w.isMember(m.ID)
	// Repeating a change is harmless if it names its member. The leader may be lost while it waits for a member to
	// catch up.
	r, err := w.proposer.proposeWithRetry(ctx, append([]byte{byte(kindMembership)}, text...), m.ID != "", catchUpTimeout+w.proposer.leaderWait())
	if err == nil && !(r.Value == alreadyRemoved && known) { // else an earlier try succeeded and its answer was lost
		err = r.toError()
	}
	if err != nil && r.Value != addedWithoutVote {
		return err
	}
	m.Voter = m.Voter && err == nil
	if noted := w.recordAudit(ctx, by, m.auditAction(), m.auditSubject()); err == nil {
		return noted
	}
	return err
}
