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
	// Voter is false for a node that follows the log and answers from it without counting for a majority.
	Voter bool
	// Leader as far as this node knows.
	Leader bool
}

// Members are the nodes of the configuration in force here, by name; none before Start.
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
		out = append(out, Member{ID: id, Addr: n.addressOf(id, string(s.Address)), Voter: s.Suffrage == raft.Voter, Leader: id == leader})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// isMember reports whether a node is in the configuration in force here.
func (n *Node) isMember(id string) bool {
	return slices.ContainsFunc(n.Members(), func(m Member) bool { return m.ID == id })
}

// kindMembership is a change of who takes part. It goes to the leader as commands do and never into the log: raft
// writes an entry of its own for it.
const kindMembership kind = 0x7f

// membership is one change.
type membership struct {
	Do   string `json:"do"` // "add", "remove" or "lead"
	ID   string `json:"id"`
	Addr string `json:"addr,omitempty"`
	Vote bool   `json:"vote,omitempty"`
}

// AddMember has a node take part, or changes the address or the vote of one that does. A new voter must be running, with
// Config.Join: it follows first, and has its vote when it has caught up. If it has not within seven seconds the error is
// ErrRefused, and the leader gives it its vote when it has kept up for ten.
func (n *Node) AddMember(ctx context.Context, p Peer, voter bool, by By) error {
	return n.reform(ctx, membership{Do: "add", ID: p.ID, Addr: p.Addr, Vote: voter}, by)
}

// RemoveMember takes a node out of the cluster. It keeps answering from its last state until it is stopped.
func (n *Node) RemoveMember(ctx context.Context, id string, by By) error {
	return n.reform(ctx, membership{Do: "remove", ID: id}, by)
}

// Lead hands leadership to a voter; to "" means whichever is the most up to date.
func (n *Node) Lead(ctx context.Context, to string, by By) error {
	return n.reform(ctx, membership{Do: "lead", ID: to}, by)
}

// reform has the leader change the membership, and puts it into the audit.
func (n *Node) reform(ctx context.Context, m membership, by By) error {
	if err := m.check(); err != nil {
		return ErrRefused{Reason: err.Error()}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the change: %w", err)
	}
	known := n.isMember(m.ID)
	// To make the same change twice is harmless, if it names its member. The leader may be lost as it waits for one to
	// catch up.
	r, err := n.persist(ctx, append([]byte{byte(kindMembership)}, text...), m.ID != "", catchUpBound+n.hold())
	if err == nil && !(r.Value == goneAlready && known) { // else a first try took place, and we did not hear so
		err = r.err()
	}
	if err != nil && r.Value != addedWithoutVote {
		return err
	}
	m.Vote = m.Vote && err == nil
	if noted := n.Note(ctx, by, m.action(), m.subject()); err == nil {
		return noted
	}
	return err
}

// action is the change's name in the audit.
func (m membership) action() string {
	switch {
	case m.Do == "lead":
		return "hand leadership on"
	case m.Do == "add" && !m.Vote:
		return "member add without a vote"
	}
	return "member " + m.Do
}

func decodeMembership(b []byte) (m membership, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("reading the change of members: %w", err)
	}
	return m, m.check()
}

func (m membership) check() error {
	switch {
	case len(m.ID) > maxName || len(m.Addr) > maxName:
		return fmt.Errorf("a member's name and address may have at most %d bytes", maxName)
	case m.Do == "lead":
		return nil
	case m.ID == "":
		return errors.New("a member needs a name: that of its certificate")
	case m.Do == "remove":
		return nil
	case m.Do != "add":
		return fmt.Errorf("there is no change of members called %q", m.Do)
	}
	if host, port, err := net.SplitHostPort(m.Addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q of member %s: write host:port, as the member advertises it for Raft", m.Addr, m.ID)
	}
	return nil
}

// reformHere changes the membership as the leader.
func (n *Node) reformHere(ctx context.Context, m membership) (result, error) {
	if m.Do == "lead" && m.ID == n.id {
		return result{Code: codeOK, Index: n.State().Index}, nil // as it is
	}
	if why := n.objection(m); why != "" {
		r := refuse("%s", why)
		if m.Do == "remove" && !n.isMember(m.ID) {
			r.Value = goneAlready
		}
		return r, nil
	}
	var f raft.Future
	switch m.Do {
	case "remove":
		f = n.raft.RemoveServer(raft.ServerID(m.ID), 0, enqueueTimeout)
	case "lead":
		f = n.leadership(m.ID)
	default:
		if m.Vote {
			return n.addVoter(ctx, m)
		}
		f = n.raft.AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), 0, enqueueTimeout)
	}
	if err := n.await(ctx, f); err != nil {
		return result{}, err
	}
	if m.Do != "lead" {
		if err := n.want(ctx, m.ID, actionVoted); err != nil {
			return result{}, err
		}
	}
	return result{Code: codeOK, Index: n.State().Index}, nil
}

func (n *Node) leadership(to string) raft.Future {
	if to == "" {
		return n.raft.LeadershipTransfer()
	}
	return n.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(n.addressOf(to, n.addressIn(to))))
}

func (n *Node) addressIn(id string) string {
	for _, m := range n.Members() {
		if m.ID == id {
			return m.Addr
		}
	}
	return ""
}

// objection is why a change must not be made; empty when it may.
func (n *Node) objection(m membership) string {
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
	case m.Do == "remove" && !known:
		return fmt.Sprintf("%s is no member: `spillway members` lists them", m.ID)
	case m.Do == "remove" && len(voters) == 1 && voters[0] == m.ID:
		return m.ID + " is the only voter: add another first"
	case m.Do == "lead" && m.ID != "" && !slices.Contains(voters, m.ID):
		return m.ID + " has no vote and so cannot lead: `spillway members` lists who has"
	case m.Do == "lead" && len(voters) == 1:
		return "there is nobody else to lead"
	case m.Do == "add" && !m.Vote && slices.Contains(voters, m.ID):
		return m.ID + " has a vote: remove it first, then add it without"
	}
	if addr, ok := n.addrs[m.ID]; m.Do == "add" && ok && addr != m.Addr {
		return fmt.Sprintf("raft.peers at the leader says that %s lives at %s: change it there, on every node", m.ID, addr)
	}
	for _, x := range n.Members() {
		if m.Do == "add" && x.Addr == m.Addr && x.ID != m.ID {
			return fmt.Sprintf("%s lives at %s already", x.ID, m.Addr)
		}
	}
	return ""
}
