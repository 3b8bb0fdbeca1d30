package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
)

const (
	defaultHeartbeat = time.Second
	minHeartbeat     = 20 * time.Millisecond
)

// Config holds the settings of one node.
type Config struct {
	// ID is the node's name; it never changes, and must be the name in its certificate.
	ID string
	// Dir is the directory of the log and the snapshots. Empty keeps everything in memory, for tests and
	// demonstrations only.
	Dir string
	// Listen is the TCP address to listen on, for Raft and for forwarded writes.
	Listen string
	// Advertise is the address at which peers reach this node; empty: its own entry in Peers, or else the listening
	// address.
	Advertise string
	// Peers are all voters, this node included, the same on every node; empty: this node alone. It forms the cluster
	// when a node without any state starts. Later it only supplies the addresses of voters.
	Peers []RaftPeer
	// Join keeps a node without any state from forming its own cluster: it waits until AddMember adds it to one.
	// Peers are then the nodes that may connect to it, itself included.
	Join bool
	// Certs holds this node's certificate and the CAs it trusts.
	Certs *identity.Certs
	// Network replaces the system's network where several nodes run in one process; nil: the system's.
	Network netif.HostNetwork
	// Heartbeat is the time without contact after which a follower suspects the leader. A lost leader is replaced in
	// about twice this time. Default 1 s, which suits round trips up to 80 ms; use 2 s across oceans.
	Heartbeat time.Duration
	// Autopilot configures the removal of voters that are silent for long. It needs GossipMessage and OnGossip. The
	// zero value removes none.
	Autopilot AutopilotConfig
	// Log receives the log messages; nil discards them.
	Log *slog.Logger
	// CheckSpec checks a spec before it is proposed and again when it is applied. It must be pure: it runs on every
	// node and must give the same result on each. nil accepts any text.
	CheckSpec func(prev, next []byte) error
	// CheckPlan checks a plan in the same way.
	CheckPlan func(prev, next []byte) error
	// HoldTimes returns how long resolvers may cache the answers of a committed spec, for the steps of a signed zone.
	// It must be pure, like CheckSpec. nil: no hold times.
	HoldTimes func(spec []byte) HoldTimes
	// DrainRules returns the safety rules of a committed spec at a time, which is that of the entry that they are
	// applied to. It must be pure, like CheckSpec. nil: no rules.
	DrainRules func(spec []byte, at time.Time) DrainRules
	// OnApply is called with each new state, with only the newest if several arrive at once. It is called from one
	// goroutine and must not block. May be nil.
	OnApply func(*State)
	// OnProposal is called with the outcome of each write through this node: "ok", "conflict", "refused",
	// "no_leader", "unknown" or "stopped". OnCommit is called with the time that a commit and its apply took, if this
	// node is the leader. OnDiskWrite is called with the time that a write to the log took to reach the disk. None
	// may block; all may be nil.
	OnProposal  func(outcome string)
	OnCommit    func(took time.Duration)
	OnDiskWrite func(took time.Duration)
	// GossipMessage returns what this node sends to the other voters outside the log, four times a second and on
	// GossipNow: soft state, at most 256 KiB, of which the newest counts. nil: nothing is sent.
	GossipMessage func() []byte
	// OnGossip is called with each message of another voter. It must not block and must accept any bytes.
	OnGossip func(from string, body []byte)
}

// RaftPeer is one voter.
type RaftPeer struct {
	ID   string
	Addr string // host and port
}

// prepareConfig returns c with its defaults, or an error for invalid settings.
func (c Config) prepareConfig() (Config, error) {
	c.Heartbeat = cmp.Or(c.Heartbeat, defaultHeartbeat)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.ID == "":
		return c, errors.New("consensus node has no name: set name")
	case c.Certs == nil:
		return c, fmt.Errorf("consensus node %s has no certificates: set tls", c.ID)
	case c.Heartbeat < minHeartbeat:
		return c, fmt.Errorf("raft heartbeat %s is too short: set at least %s", c.Heartbeat, minHeartbeat)
	}
	if id := c.Certs.ID(); id.Role != identity.RoleGlobal || id.Name != c.ID {
		return c, fmt.Errorf("consensus node is named %s but its certificate names %s: set name or tls to fit", c.ID, id)
	}
	return c, nil
}

// buildVoters checks the list of peers and sorts it, so that all nodes have the same order.
func buildVoters(id, self string, peers []RaftPeer) (raft.Configuration, error) {
	var conf raft.Configuration
	if len(peers) == 0 {
		peers = []RaftPeer{{ID: id, Addr: self}}
	}
	names, addrs := map[string]bool{}, map[string]bool{}
	for _, p := range peers {
		if _, _, err := net.SplitHostPort(p.Addr); err != nil {
			return conf, fmt.Errorf("raft peer %s: address %q: %w: write host:port", p.ID, p.Addr, err)
		}
		if p.ID == "" || names[p.ID] || addrs[p.Addr] {
			return conf, fmt.Errorf("raft peer %q at %s: every peer needs a unique name and a unique address", p.ID, p.Addr)
		}
		names[p.ID], addrs[p.Addr] = true, true
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	if !names[id] {
		return conf, fmt.Errorf("raft peers do not include this node, %s: list all voters, the same on every node", id)
	}
	slices.SortFunc(conf.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return conf, nil
}

// raftConfig returns the configuration of hashicorp/raft. The comments give the reason of each value.
func (c Config) raftConfig(restore bool, log hcLogger) *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.ID)
	r.Logger = log
	r.HeartbeatTimeout, r.ElectionTimeout = c.Heartbeat, c.Heartbeat
	r.LeaderLeaseTimeout = c.Heartbeat / 2
	r.CommitTimeout = c.Heartbeat / 2                             // only a fallback: announceCommits informs followers of a commit
	r.SnapshotInterval, r.SnapshotThreshold = 2*time.Second, 1024 // the state is small: a short log makes a start fast, also for a node that often restarts
	r.TrailingLogs = 10240                                        // a follower that lags by hours needs no snapshot
	r.ShutdownOnRemove = false                                    // a removed node still answers DNS from its last state
	r.NoLegacyTelemetry = true
	r.RestoreCommittedLogs = restore
	return r
}

// stateChecks returns the checks of specs and plans.
func (c Config) stateChecks() stateChecks {
	return stateChecks{spec: c.CheckSpec, plan: c.CheckPlan, holdTimes: c.HoldTimes, drainRules: c.DrainRules}
}
