package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/spillway-lb/spillway/internal/identity"
)

const (
	appliedMarkDelay = 250 * time.Millisecond // from the last entry applied to the record of its index
	transferTimeout  = 5 * time.Second
	stopTimeout      = 10 * time.Second
	rpcTimeout       = 10 * time.Second
	poolSize         = 3
	// noPipelining makes raft wait for each answer before it sends the next entries. Its pipeline locks up when a
	// follower refuses entries while more are being sent: that follower then gets heartbeats and never an entry
	// again, and the leader cannot be stopped (hashicorp/raft#612). A round trip carries 64 entries, many times the
	// write rate of Spillway.
	noPipelining      = 1
	retainedSnapshots = 2 // snapshots

	snapshotLogBytes = 8 << 20 // of commands since the last snapshot: a restart reads them in well under a second
)

// Node is one member of the cluster. Safe for concurrent use.
type Node struct {
	cfg       Config
	id        string
	log       *slog.Logger
	refusals  *refusalLog
	conns     *connSet
	listener  *raftListener
	fsm       *fsm
	dialer    peerDialer
	contacts  *contactTimes
	committed chan struct{} // signals a commit on this node to be announced

	nonMember atomic.Pointer[NonMember] // the report of other members that this node is not a member

	restoreMu sync.RWMutex // read-locked while a command is proposed here, so that a restore overwrites none

	gossipNowMu sync.Mutex
	gossipNow   chan struct{} // closed to send gossip now

	ctx     context.Context // ends when the node stops
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	started atomic.Bool

	snapshotting atomic.Bool // a snapshot is in progress
	stopped      atomic.Bool

	// Set once by Start, before started.
	raft          *raft.Raft
	transport     *raft.NetworkTransport
	store         *store // nil when everything is in memory
	peerAddrs     map[string]string
	replayedIndex uint64 // index of the last command that raft replays at its start
}

// New checks the configuration and opens the port, so that Addr is known.
func New(c Config) (*Node, error) {
	c, err := c.prepareConfig()
	if err != nil {
		return nil, err
	}
	ln, err := listenRaft(c.Network, c.Listen, c.ID)
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: c, id: c.ID, log: c.Log, refusals: newRefusalLog(c.Log), conns: newConnSet(), contacts: newContactTimes(), committed: make(chan struct{}, 1), gossipNow: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.fsm = newFSM(stateChecks{spec: c.CheckSpec, plan: c.CheckPlan, holdTimes: c.HoldTimes}, c.Log)
	n.listener = newRaftListener(ln, c.Certs, c.Log, n.refusals, n.conns, n.checkRaftPeer)
	n.listener.serveProposal, n.listener.receiveGossip = n.serveProposal, n.receiveGossip
	return n, nil
}

// Addr is the listening address.
func (n *Node) Addr() net.Addr { return n.listener.ln.Addr() }

// SetPeers replaces the voters of the configuration. It has an effect only before Start, for nodes that listen on
// port 0.
func (n *Node) SetPeers(peers []RaftPeer) { n.cfg.Peers = slices.Clone(peers) }

// State returns the last state applied here. It never waits, is never nil, and must not be written to.
func (n *Node) State() *State { return n.fsm.state.Load() }

// Start opens the log, restores the last known committed state, and joins the cluster. It returns when that state is
// applied and the node serves, which needs no leader. ctx bounds the start only.
func (n *Node) Start(ctx context.Context) error {
	if n.stopped.Load() || n.started.Load() {
		return errors.New("starting consensus node: it was started before: create a new one")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting consensus node: %w", err)
	}
	if err := n.openRaft(); err != nil {
		n.undoStart()
		return fmt.Errorf("starting consensus node %s: %w", n.id, err)
	}
	if err := n.waitForIndex(ctx, n.replayedIndex); err != nil {
		_ = n.raft.Shutdown().Error() // the end of ctx is the error to return
		n.undoStart()
		return fmt.Errorf("starting consensus node %s: replaying the log up to index %d: %w", n.id, n.replayedIndex, err)
	}
	n.started.Store(true)
	n.wg.Go(func() { n.listener.acceptLoop(n.ctx) })
	n.wg.Go(n.followState)
	n.wg.Go(n.announceCommits)
	n.wg.Go(n.runGossip)
	n.wg.Go(n.runAutopilot)
	n.wg.Go(n.watchMembership)
	return nil
}

// openRaft creates raft on its stores and its transport.
func (n *Node) openRaft() error {
	self := cmp.Or(n.cfg.Advertise, peerAddr(n.cfg.Peers, n.id), n.Addr().String())
	conf, err := buildVoters(n.id, self, n.cfg.Peers)
	if err != nil {
		return err
	}
	n.peerAddrs = map[string]string{}
	names := map[string]string{}
	for _, v := range conf.Servers {
		n.peerAddrs[string(v.ID)], names[string(v.Address)] = string(v.Address), string(v.ID)
	}
	log := hcLogger{logger: n.log, dedup: &logDeduplicator{nodeNames: names}}
	n.dialer = peerDialer{network: n.cfg.Network, ctx: n.ctx, certs: n.cfg.Certs, nodeNames: names, refusals: n.refusals, conns: n.conns, log: log}
	logs, stable, snaps, err := n.openStores(log)
	if err != nil {
		return err
	}
	if n.store != nil {
		if err := errors.Join(verifyStorage(n.cfg.Dir, snaps, n.store), n.store.checkWritable()); err != nil {
			return err
		}
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addrProvider(n.peerAddrs), Logger: log,
		Stream:  &raftStreams{peerDialer: n.dialer, accepted: n.listener.streams, advertise: self, closed: make(chan struct{})},
		MaxPool: poolSize, Timeout: rpcTimeout, MaxRPCsInFlight: noPipelining,
	})
	c := n.cfg.raftConfig(n.store != nil, log)
	if !n.cfg.Join {
		if err := bootstrapCluster(c, logs, stable, snaps, n.transport, conf); err != nil {
			return err
		}
	}
	base, err := ensureBaseSnapshot(logs, snaps, n.transport)
	if err != nil {
		return err
	}
	if n.store != nil {
		n.store.baseIndex = base
		if n.replayedIndex, err = n.store.lastReplayedIndex(); err != nil {
			return err
		}
	}
	n.raft, err = raft.NewRaft(c, n.fsm, logs, stable, snaps, n.transport)
	if err == nil && n.store != nil {
		n.store.disk.raftRunning.Store(true)
	}
	return err
}

func (n *Node) openStores(log hcLogger) (raft.LogStore, raft.StableStore, raft.SnapshotStore, error) {
	if n.cfg.Dir == "" {
		mem := raft.NewInmemStore()
		return mem, mem, raft.NewInmemSnapshotStore(), nil
	}
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return nil, nil, nil, err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Clean(n.cfg.Dir), retainedSnapshots, log)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening snapshots in %s: %w", n.cfg.Dir, err)
	}
	// Snapshots hold the secrets of the state, and raft makes them readable to all users: dir may be an operator's
	// own.
	if err := os.Chmod(filepath.Join(n.cfg.Dir, snapshotDir), 0o700); err != nil {
		return nil, nil, nil, fmt.Errorf("closing the snapshots in %s to others: %w", n.cfg.Dir, err)
	}
	n.store, err = openStore(n.cfg.Dir)
	if err != nil {
		return nil, nil, nil, err
	}
	n.store.disk.log, n.store.disk.observe = n.log, n.cfg.OnDiskWrite
	if n.ctx != nil { // nil during a recovery
		n.store.disk.stopped = n.ctx.Done()
	}
	return n.store, n.store, snaps, nil
}

// followState calls OnApply with new states, and records the applied index after a pause in the writes.
func (n *Node) followState() {
	var published, marked uint64
	quiet := time.NewTimer(appliedMarkDelay)
	defer quiet.Stop()
	for {
		changed := n.fsm.changeSignal()
		if s := n.State(); s.Index != published {
			published = s.Index
			if n.cfg.OnApply != nil {
				n.cfg.OnApply(s)
			}
			quiet.Reset(appliedMarkDelay)
			n.snapshotLargeLog()
		}
		select {
		case <-changed:
		case <-quiet.C:
			marked = n.recordApplied(marked)
		case <-n.ctx.Done():
			return
		}
	}
}

// snapshotLargeLog takes a snapshot when the log has grown by more bytes than a start should read. Raft itself counts
// entries, and one spec may be a thousand times larger than another.
func (n *Node) snapshotLargeLog() {
	if n.store == nil || n.fsm.bytesSinceSnapshot.Load() < snapshotLogBytes || !n.snapshotting.CompareAndSwap(false, true) {
		return
	}
	n.wg.Go(func() {
		defer n.snapshotting.Store(false)
		// Raft has a reason when it refuses, such as nothing new; the next entry tries again.
		_ = n.awaitFuture(n.ctx, n.raft.Snapshot())
	})
}

// recordApplied records the applied index if it changed since the last record.
func (n *Node) recordApplied(last uint64) uint64 {
	now := n.State().Index
	if n.store == nil || now == last {
		return last
	}
	if err := n.store.markApplied(now); err != nil {
		n.log.Error("recording the applied index failed", "error", err)
		return last
	}
	return now
}

// announceCommits informs the followers at once of a commit on this node. Raft does so with the next entry, or when
// CommitTimeout has passed without one. A barrier is such an entry, with no content. The code does not wait for it:
// raft never answers a barrier that it accepts during its shutdown.
func (n *Node) announceCommits() {
	for {
		select {
		case <-n.committed:
			n.raft.Barrier(enqueueTimeout) // a former leader has nothing to announce
		case <-n.ctx.Done():
			return
		}
	}
}

// checkRaftPeer admits to Raft streams only the nodes that the configuration lists or that an operator has added.
func (n *Node) checkRaftPeer(id identity.ID) error {
	if err := requireGlobalRole(id); err != nil {
		return err
	}
	if _, ok := n.peerAddrs[id.Name]; !ok && !n.isMember(id.Name) {
		return fmt.Errorf("global node %s is neither among the configured raft peers nor a member: list it under raft.peers on every node, or `spillway members add` it, or stop it", id.Name)
	}
	return nil
}

// resolveNodeAddr returns the address of a node by our configuration, or else by raft's.
func (n *Node) resolveNodeAddr(id, otherwise string) string {
	return cmp.Or(n.peerAddrs[id], otherwise)
}

// addrProvider lets the address of a voter change without a membership change.
type addrProvider map[string]string

// ServerAddr returns a voter's configured address; on an error raft uses the address with which the voter was added.
func (p addrProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a, ok := p[string(id)]; ok {
		return raft.ServerAddress(a), nil
	}
	return "", fmt.Errorf("no address configured for %s", id)
}

func peerAddr(peers []RaftPeer, id string) string {
	for _, p := range peers {
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}
