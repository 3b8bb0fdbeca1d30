package consensus

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// raftHandle is raft as the parts of a node reach it. Start sets Raft and then running; before, no part may call it.
type raftHandle struct {
	*raft.Raft
	calls   raftCalls
	running atomic.Bool
}

// addressBook holds the addresses of the configured voters. Start fills it before raft runs.
type addressBook struct {
	addrs map[string]string // by node name
	names map[string]string // node names by address
}

func newAddressBook() *addressBook {
	return &addressBook{addrs: map[string]string{}, names: map[string]string{}}
}

func (b *addressBook) addVoters(voters []raft.Server) {
	for _, v := range voters {
		b.addrs[string(v.ID)], b.names[string(v.Address)] = string(v.Address), string(v.ID)
	}
}

// resolveNodeAddr returns the address of a node by this node's configuration, or else by raft's.
func (b *addressBook) resolveNodeAddr(id, otherwise string) string {
	return cmp.Or(b.addrs[id], otherwise)
}

// clusterView reads the leader, the members and raft's progress as this node sees them. Before Start all are empty.
type clusterView struct {
	id      string
	raft    *raftHandle
	book    *addressBook
	applied *appliedState
}

// IsLeader reports whether this node is the leader, as far as it can tell.
func (v *clusterView) IsLeader() bool {
	return v.raft.running.Load() && v.raft.State() == raft.Leader
}

// Leader returns the name of the leader, as far as this node can tell; empty if there is none.
func (v *clusterView) Leader() string {
	if !v.raft.running.Load() {
		return ""
	}
	_, id := v.raft.LeaderWithID()
	return string(id)
}

// otherLeaderAddr returns the address of the leader; empty if there is none or it is this node.
func (v *clusterView) otherLeaderAddr() string {
	addr, id := v.raft.LeaderWithID()
	if addr == "" || string(id) == v.id {
		return ""
	}
	return v.book.resolveNodeAddr(string(id), string(addr))
}

// Members returns the nodes of the configuration in force here, by name; none before Start.
func (v *clusterView) Members() []Member {
	if !v.raft.running.Load() {
		return nil
	}
	f := v.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var out []Member
	leader := v.Leader()
	for _, s := range f.Configuration().Servers {
		id := string(s.ID)
		out = append(out, Member{ID: id, Addr: v.book.resolveNodeAddr(id, string(s.Address)), Voter: s.Suffrage == raft.Voter, Leader: id == leader})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// isMember reports whether a node is in the configuration in force here.
func (v *clusterView) isMember(id string) bool {
	_, ok := findMember(v.Members(), id)
	return ok
}

func findMember(members []Member, id string) (Member, bool) {
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if at < 0 {
		return Member{}, false
	}
	return members[at], true
}

// Status returns the present status of the node; before Start only ID is set.
func (v *clusterView) Status() NodeStatus {
	s := NodeStatus{ID: v.id, State: "shutdown", LastContact: -1}
	if !v.raft.running.Load() {
		return s
	}
	s.State, s.Leader = stateName(v.raft.State()), v.Leader()
	s.Term, s.AppliedIndex = v.raft.CurrentTerm(), v.appliedIndex()
	s.CommitIndex, s.LastIndex = v.raft.CommitIndex(), v.raft.LastIndex()
	if s.State == "leader" {
		s.LastContact = 0
	} else if at := v.raft.LastContact(); !at.IsZero() {
		s.LastContact = time.Since(at)
	}
	if f := v.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			if m.Suffrage == raft.Voter {
				s.Voters = append(s.Voters, RaftPeer{ID: string(m.ID), Addr: v.book.resolveNodeAddr(string(m.ID), string(m.Address))})
			}
		}
	}
	return s
}

// appliedIndex is the last log index whose entry has been applied. Raft's own figure is ahead: it counts an entry
// when it is queued, and a restarting node queues its whole log.
func (v *clusterView) appliedIndex() uint64 {
	queued := v.raft.AppliedIndex()
	if v.raft.Stats()["fsm_pending"] == "0" {
		return queued
	}
	return v.applied.State().Index
}

// NodeStatus is an operator's view of a node. It is read without asking any other node.
type NodeStatus struct {
	ID           string
	State        string // "leader", "follower", "candidate" or "shutdown"
	Leader       string // by name; empty when none is known
	Term         uint64
	AppliedIndex uint64        // last log index applied here
	CommitIndex  uint64        // last log index known to be committed
	LastIndex    uint64        // last log index stored here
	Voters       []RaftPeer    // in the configuration in force here
	LastContact  time.Duration // since the last contact with the leader; 0 on the leader, negative if there was none
}

func stateName(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Follower:
		return "follower"
	case raft.Candidate:
		return "candidate"
	}
	return "shutdown"
}
