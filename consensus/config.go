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
	"github.com/spillway-lb/spillway/internal/network"
)

const (
	defaultHeartbeat = time.Second
	minHeartbeat     = 20 * time.Millisecond
)

// Config says how one node takes part.
type Config struct {
	// ID is the node's name; it never changes, and must be the name in its certificate.
	ID string
	// Dir holds the log and the snapshots; empty keeps everything in memory, for tests and demonstrations only.
	Dir string
	// Listen is the TCP address to listen on, for Raft and for forwarded writes.
	Listen string
	// Advertise is where peers reach this node; empty: its own entry in Peers, or else the address listened on.
	Advertise string
	// Peers are all voters, this node included, the same on every node; empty: this node alone. It counts when a node
	// without any state starts, and later for finding out at which address a voter is.
	Peers []Peer
	// Join keeps a node without any state from starting a cluster of its own: it waits to be added to one (AddMember).
	// Peers then are those that it may be spoken to by, itself included.
	Join bool
	// Certs prove who this node is and whom it trusts.
	Certs *identity.Certs
	// Network stands in for the system's where nodes run inside one process; nil: the system's.
	Network network.Network
	// Heartbeat is how long a silent leader is believed in; a lost one is replaced in about twice this. Default 1 s,
	// which suits round trips up to 80 ms; 2 s across oceans.
	Heartbeat time.Duration
	// Keep says what the leader does by itself about voters that are silent for long. It needs Aside and OnAside. The zero
	// value removes nobody.
	Keep Keep
	// Log takes what there is to say; nil discards it.
	Log *slog.Logger
	// CheckSpec judges a spec before it is proposed and again as it is applied. It must be pure: it runs on every node
	// and must say the same on each. nil: any text will do.
	CheckSpec func(prev, next []byte) error
	// CheckPlan judges a plan likewise.
	CheckPlan func(prev, next []byte) error
	// Holds says for how long resolvers may hold what a spec that was agreed on has them answered, for the steps of a
	// signed zone. It must be pure as CheckSpec. nil: not at all.
	Holds func(spec []byte) Holds
	// OnApply is told of each new state, the newest one only when several came at once. It is called from one goroutine
	// and must not block. nil: nobody is told.
	OnApply func(*State)
	// OnProposal is told what became of each write made through this node: "ok", "conflict", "refused", "no_leader",
	// "unknown" or "stopped". OnCommit is told how long the leader, if it is this node, took to have one agreed and applied,
	// and OnDisk how long a write to the log took to be on the disk. None may block; nil: nobody is told.
	OnProposal func(outcome string)
	OnCommit   func(took time.Duration)
	OnDisk     func(took time.Duration)
	// Aside is what this node tells the other voters outside the log, four times a second and when nudged: soft state,
	// at most 256 KiB, of which the newest counts. nil: nothing is told.
	Aside func() []byte
	// OnAside is told of what another voter said. It must not block and must expect any bytes.
	OnAside func(from string, body []byte)
}

// Peer is one voter.
type Peer struct {
	ID   string
	Addr string // host and port
}

// prepared is c with its defaults, or what is wrong with it.
func (c Config) prepared() (Config, error) {
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
		return c, fmt.Errorf("consensus node is named %s but its certificate says %s: set name or tls to fit", c.ID, id)
	}
	return c, nil
}

// voters checks the list of peers and puts it into an order that all nodes share.
func voters(id, self string, peers []Peer) (raft.Configuration, error) {
	var conf raft.Configuration
	if len(peers) == 0 {
		peers = []Peer{{ID: id, Addr: self}}
	}
	names, addrs := map[string]bool{}, map[string]bool{}
	for _, p := range peers {
		if _, _, err := net.SplitHostPort(p.Addr); err != nil {
			return conf, fmt.Errorf("raft peer %s: address %q: %w: write host:port", p.ID, p.Addr, err)
		}
		if p.ID == "" || names[p.ID] || addrs[p.Addr] {
			return conf, fmt.Errorf("raft peer %q at %s: every peer needs a name and an address of its own", p.ID, p.Addr)
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

// raftConfig is the library's configuration, for the reasons in the comments.
func (c Config) raftConfig(restore bool, log hcLogger) *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.ID)
	r.Logger = log
	r.HeartbeatTimeout, r.ElectionTimeout = c.Heartbeat, c.Heartbeat
	r.LeaderLeaseTimeout = c.Heartbeat / 2
	r.CommitTimeout = c.Heartbeat / 2                             // only a fallback: followers learn of a commit from announce
	r.SnapshotInterval, r.SnapshotThreshold = 2*time.Second, 1024 // the state is small: a short log is a fast start, also of a node that never runs for long
	r.TrailingLogs = 10240                                        // a follower hours behind needs no snapshot
	r.ShutdownOnRemove = false                                    // a removed node still answers DNS from its last state
	r.NoLegacyTelemetry = true
	r.RestoreCommittedLogs = restore
	return r
}
