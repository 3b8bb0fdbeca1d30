package consensus

import (
	"time"

	"github.com/hashicorp/raft"
)

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

// Status returns the present status of the node; before Start only ID is set.
func (n *Node) Status() NodeStatus {
	s := NodeStatus{ID: n.id, State: "shutdown", LastContact: -1}
	if !n.started.Load() {
		return s
	}
	s.State, s.Leader = stateName(n.raft.State()), n.Leader()
	s.Term, s.AppliedIndex = n.raft.CurrentTerm(), n.appliedIndex()
	s.CommitIndex, s.LastIndex = n.raft.CommitIndex(), n.raft.LastIndex()
	if s.State == "leader" {
		s.LastContact = 0
	} else if at := n.raft.LastContact(); !at.IsZero() {
		s.LastContact = time.Since(at)
	}
	if f := n.raft.GetConfiguration(); f.Error() == nil {
		for _, v := range f.Configuration().Servers {
			if v.Suffrage == raft.Voter {
				s.Voters = append(s.Voters, RaftPeer{ID: string(v.ID), Addr: n.resolveNodeAddr(string(v.ID), string(v.Address))})
			}
		}
	}
	return s
}

// appliedIndex is the last log index whose entry has been applied. Raft's own figure is ahead: it counts an entry
// when it is queued, and a restarting node queues its whole log.
func (n *Node) appliedIndex() uint64 {
	queued := n.raft.AppliedIndex()
	if n.raft.Stats()["fsm_pending"] == "0" {
		return queued
	}
	return n.State().Index
}

// IsLeader reports whether this node is the leader, as far as it can tell.
func (n *Node) IsLeader() bool { return n.started.Load() && n.raft.State() == raft.Leader }

// Leader returns the name of the leader, as far as this node can tell; empty if there is none.
func (n *Node) Leader() string {
	if !n.started.Load() {
		return ""
	}
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// DiskFailures counts the writes that the disk failed to take.
func (n *Node) DiskFailures() uint64 {
	if !n.started.Load() || n.store == nil {
		return 0
	}
	return n.store.disk.failedWrites.Load()
}

// DiskFailing reports whether the last write to disk failed: this node takes no part in changes until a write
// succeeds.
func (n *Node) DiskFailing() bool {
	return n.started.Load() && n.store != nil && n.store.disk.lastFailed.Load()
}

// RefusedConns counts connections refused because of the peer's certificate or because of malformed bytes.
func (n *Node) RefusedConns() uint64 { return n.refusals.count.Load() }

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
