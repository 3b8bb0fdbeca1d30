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
