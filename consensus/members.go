package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
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

// kindMembership changes the membership. It goes to the leader like a command but never into the log: raft writes its
// own entry for it.
const kindMembership commandKind = 0x7f

// membershipChange is one change.
type membershipChange struct {
	Op    string `json:"do"` // "add", "remove" or "lead"
	ID    string `json:"id"`
	Addr  string `json:"addr,omitempty"`
	Voter bool   `json:"vote,omitempty"`
}

// auditAction is the name of the change in the audit.
func (m membershipChange) auditAction() string {
	switch {
	case m.Op == "lead":
		return "transfer leadership"
	case m.Op == "add" && !m.Voter:
		return "member add without a vote"
	}
	return "member " + m.Op
}

func decodeMembership(b []byte) (m membershipChange, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decoding the membership change: %w", err)
	}
	return m, m.checkFields()
}

func (m membershipChange) checkFields() error {
	switch {
	case len(m.ID) > maxName || len(m.Addr) > maxName:
		return fmt.Errorf("a member's name and address may have at most %d bytes", maxName)
	case m.Op == "lead":
		return nil
	case m.ID == "":
		return errors.New("the member has no name: give the name in its certificate")
	case m.Op == "remove":
		return nil
	case m.Op != "add":
		return fmt.Errorf("unknown membership change %q: the node that sent it is of a later release: upgrade the leader", m.Op)
	}
	if host, port, err := net.SplitHostPort(m.Addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q of member %s: write host:port, as the member advertises it for Raft", m.Addr, m.ID)
	}
	return nil
}

func (m membershipChange) auditSubject() string {
	if m.Addr == "" {
		return m.ID
	}
	return fmt.Sprintf("%s %s", m.ID, m.Addr)
}

// findObjection returns the reason why a change must not be made; empty when it may. configured are the addresses of
// raft.peers on this node, the leader.
func findObjection(m membershipChange, members []Member, configured map[string]string) string {
	var voters, others []string
	for _, x := range members {
		if x.Voter {
			voters = append(voters, x.ID)
		} else {
			others = append(others, x.ID)
		}
	}
	known := slices.Contains(voters, m.ID) || slices.Contains(others, m.ID)
	switch {
	case m.Op == "remove" && !known:
		return fmt.Sprintf("%s is not a member: `spillway members` lists the members", m.ID)
	case m.Op == "remove" && len(voters) == 1 && voters[0] == m.ID:
		return m.ID + " is the only voter: add another first"
	case m.Op == "lead" && m.ID != "" && !slices.Contains(voters, m.ID):
		return m.ID + " has no vote and cannot become the leader: `spillway members` lists the voters"
	case m.Op == "lead" && len(voters) == 1:
		return "no other voter can become the leader: add one first"
	case m.Op == "add" && !m.Voter && slices.Contains(voters, m.ID):
		return m.ID + " has a vote: remove it first, then add it without"
	}
	if addr, ok := configured[m.ID]; m.Op == "add" && ok && addr != m.Addr {
		return fmt.Sprintf("raft.peers on the leader has %s at %s: change it there, on every node", m.ID, addr)
	}
	for _, x := range members {
		if m.Op == "add" && x.Addr == m.Addr && x.ID != m.ID {
			return fmt.Sprintf("%s already has the address %s", x.ID, m.Addr)
		}
	}
	return ""
}
