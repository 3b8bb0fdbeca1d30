package consensus

import (
	"time"

	"github.com/hashicorp/raft"
)

// Status is what an operator wants to know of a node. It is read without asking any other node.
type Status struct {
	ID          string
	State       string // "leader", "follower", "candidate" or "shutdown"
	Leader      string // by name; empty when none is known
	Term        uint64
	Applied     uint64        // last log index applied here
	Commit      uint64        // last log index known to be committed
	Last        uint64        // last log index stored here
	Voters      []Peer        // in the configuration in force here
	LastContact time.Duration // since the leader was last heard; 0 at the leader, negative when it never was
}

// Status looks at the node as it is now; before Start only ID is known.
func (n *Node) Status() Status {
	s := Status{ID: n.id, State: "shutdown", LastContact: -1}
	if !n.started.Load() {
		return s
	}
	s.State, s.Leader = stateName(n.raft.State()), n.Leader()
	s.Term, s.Applied = n.raft.CurrentTerm(), n.applied()
	s.Commit, s.Last = n.raft.CommitIndex(), n.raft.LastIndex()
	if s.State == "leader" {
		s.LastContact = 0
	} else if at := n.raft.LastContact(); !at.IsZero() {
		s.LastContact = time.Since(at)
	}
	if f := n.raft.GetConfiguration(); f.Error() == nil {
		for _, v := range f.Configuration().Servers {
			if v.Suffrage == raft.Voter {
				s.Voters = append(s.Voters, Peer{ID: string(v.ID), Addr: n.addressOf(string(v.ID), string(v.Address))})
			}
		}
	}
	return s
}

// applied is the last log index whose entry has been applied. Raft's own figure runs ahead: it counts an entry when it is
// queued, and a node that starts again queues its whole log.
func (n *Node) applied() uint64 {
	queued := n.raft.AppliedIndex()
	if n.raft.Stats()["fsm_pending"] == "0" {
		return queued
	}
	return n.State().Index
}

// IsLeader reports whether this node leads, as far as it knows.
func (n *Node) IsLeader() bool { return n.started.Load() && n.raft.State() == raft.Leader }

// Leader is the name of the node that leads, as far as this one knows; empty when none does.
func (n *Node) Leader() string {
	if !n.started.Load() {
		return ""
	}
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// DiskFailures counts writes that the disk did not take.
func (n *Node) DiskFailures() uint64 {
	if !n.started.Load() || n.store == nil {
		return 0
	}
	return n.store.disk.failed.Load()
}

// DiskFailing reports whether the disk did not take the last write: this node takes no part in changes until it does.
func (n *Node) DiskFailing() bool {
	return n.started.Load() && n.store != nil && n.store.disk.failing.Load()
}

// Refused counts connections refused because of the peer's certificate or because it sent rubbish.
func (n *Node) Refused() uint64 { return n.refused.count.Load() }

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
