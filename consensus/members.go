package consensus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/hashicorp/raft"
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

// Members returns the nodes of the configuration in force here, by name; none before Start.
func (n *Node) Members() []Member {
	if !n.started.Load() {
		return nil
	}
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var out []Member
	leader := n.Leader()
	for _, s := range f.Configuration().Servers {
		id := string(s.ID)
		out = append(out, Member{ID: id, Addr: n.resolveNodeAddr(id, string(s.Address)), Voter: s.Suffrage == raft.Voter, Leader: id == leader})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// isMember reports whether a node is in the configuration in force here.
func (n *Node) isMember(id string) bool {
	return slices.ContainsFunc(n.Members(), func(m Member) bool { return m.ID == id })
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

// AddMember adds a node, or changes the address or the vote of a member. A new voter must be running, with
// Config.Join. It follows first and gets its vote when it has caught up. If that takes more than seven seconds the
// error is ErrRefused, and the leader grants the vote after the node has kept up for ten seconds.
func (n *Node) AddMember(ctx context.Context, p RaftPeer, voter bool, by Attribution) error {
	return n.changeMembership(ctx, membershipChange{Op: "add", ID: p.ID, Addr: p.Addr, Voter: voter}, by)
}

// RemoveMember removes a node from the cluster. The node answers from its last state until it is stopped.
func (n *Node) RemoveMember(ctx context.Context, id string, by Attribution) error {
	return n.changeMembership(ctx, membershipChange{Op: "remove", ID: id}, by)
}

// TransferLeadership hands leadership to a voter; "" means the most up-to-date one.
func (n *Node) TransferLeadership(ctx context.Context, to string, by Attribution) error {
	return n.changeMembership(ctx, membershipChange{Op: "lead", ID: to}, by)
}

// changeMembership makes the leader change the membership, and adds the change to the audit.
func (n *Node) changeMembership(ctx context.Context, m membershipChange, by Attribution) error {
	if err := m.checkFields(); err != nil {
		return ErrRefused{Reason: err.Error()}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	known := n.isMember(m.ID)
	// Repeating a change is harmless if it names its member. The leader may be lost while it waits for a member to
	// catch up.
	r, err := n.proposeWithRetry(ctx, append([]byte{byte(kindMembership)}, text...), m.ID != "", catchUpTimeout+n.leaderWait())
	if err == nil && !(r.Value == alreadyRemoved && known) { // else an earlier try succeeded and its answer was lost
		err = r.toError()
	}
	if err != nil && r.Value != addedWithoutVote {
		return err
	}
	m.Voter = m.Voter && err == nil
	if noted := n.RecordAudit(ctx, by, m.auditAction(), m.auditSubject()); err == nil {
		return noted
	}
	return err
}

// auditAction is the name of the change in the audit.
func (m membershipChange) auditAction() string {
	switch {
	case m.Op == "lead":
		return "hand leadership on"
	case m.Op == "add" && !m.Voter:
		return "member add without a vote"
	}
	return "member " + m.Op
}

func decodeMembership(b []byte) (m membershipChange, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("reading the change of members: %w", err)
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
		return errors.New("a member needs the name in its certificate")
	case m.Op == "remove":
		return nil
	case m.Op != "add":
		return fmt.Errorf("there is no change of members called %q", m.Op)
	}
	if host, port, err := net.SplitHostPort(m.Addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q of member %s: write host:port, as the member advertises it for Raft", m.Addr, m.ID)
	}
	return nil
}

// changeMembershipAsLeader makes the change on the leader.
func (n *Node) changeMembershipAsLeader(ctx context.Context, m membershipChange) (commandResult, error) {
	if m.Op == "lead" && m.ID == n.id {
		return commandResult{Code: codeOK, Index: n.State().Index}, nil // already in the wanted state
	}
	if why := n.findObjection(m); why != "" {
		r := newRefusal("%s", why)
		if m.Op == "remove" && !n.isMember(m.ID) {
			r.Value = alreadyRemoved
		}
		return r, nil
	}
	var f raft.Future
	switch m.Op {
	case "remove":
		f = n.raft.RemoveServer(raft.ServerID(m.ID), 0, enqueueTimeout)
	case "lead":
		f = n.startTransfer(m.ID)
	default:
		if m.Voter {
			return n.addVoter(ctx, m)
		}
		f = n.raft.AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), 0, enqueueTimeout)
	}
	if err := n.awaitFuture(ctx, f); err != nil {
		return commandResult{}, err
	}
	if m.Op != "lead" {
		if err := n.updatePendingVoter(ctx, m.ID, actionRemovePending); err != nil {
			return commandResult{}, err
		}
	}
	return commandResult{Code: codeOK, Index: n.State().Index}, nil
}

func (n *Node) startTransfer(to string) raft.Future {
	if to == "" {
		return n.raft.LeadershipTransfer()
	}
	return n.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(n.resolveNodeAddr(to, n.memberAddr(to))))
}

func (n *Node) memberAddr(id string) string {
	for _, m := range n.Members() {
		if m.ID == id {
			return m.Addr
		}
	}
	return ""
}

// findObjection returns the reason why a change must not be made; empty when it may.
func (n *Node) findObjection(m membershipChange) string {
	var voters, others []string
	for _, x := range n.Members() {
		if x.Voter {
			voters = append(voters, x.ID)
		} else {
			others = append(others, x.ID)
		}
	}
	known := slices.Contains(voters, m.ID) || slices.Contains(others, m.ID)
	switch {
	case m.Op == "remove" && !known:
		return fmt.Sprintf("%s is no member: `spillway members` lists them", m.ID)
	case m.Op == "remove" && len(voters) == 1 && voters[0] == m.ID:
		return m.ID + " is the only voter: add another first"
	case m.Op == "lead" && m.ID != "" && !slices.Contains(voters, m.ID):
		return m.ID + " has no vote and so cannot lead: `spillway members` lists who has"
	case m.Op == "lead" && len(voters) == 1:
		return "there is no other voter to lead"
	case m.Op == "add" && !m.Voter && slices.Contains(voters, m.ID):
		return m.ID + " has a vote: remove it first, then add it without"
	}
	if addr, ok := n.peerAddrs[m.ID]; m.Op == "add" && ok && addr != m.Addr {
		return fmt.Sprintf("raft.peers on the leader has %s at %s: change it there, on every node", m.ID, addr)
	}
	for _, x := range n.Members() {
		if m.Op == "add" && x.Addr == m.Addr && x.ID != m.ID {
			return fmt.Sprintf("%s already has the address %s", x.ID, m.Addr)
		}
	}
	return ""
}
