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
	markDelay       = 250 * time.Millisecond // from the last entry applied to the record of it
	transferTimeout = 5 * time.Second
	stopTimeout     = 10 * time.Second
	rpcTimeout      = 10 * time.Second
	poolSize        = 3
	// unpipelined has raft wait for each answer before it sends the next entries. Its pipeline locks up when a follower
	// refuses entries while more are being sent: that follower then gets heartbeats and never an entry again, and the
	// leader cannot be stopped (hashicorp/raft#612). A round trip carries 64 entries, many times what we write.
	unpipelined = 1
	retained    = 2 // snapshots

	snapshotBytes = 8 << 20 // of commands since the last snapshot: what a node reads again in well under a second
)

// Node is one member of the cluster. Safe for concurrent use.
type Node struct {
	cfg     Config
	id      string
	log     *slog.Logger
	refused *refusals
	conns   *conns
	listen  *listener
	fsm     *fsm
	dialer  dialer
	heard   *heard
	written chan struct{} // something was committed here that the others should hear of

	outside atomic.Pointer[Outside] // what other members say, if they say that this node is none

	restoring sync.RWMutex // held to read while a command is proposed here, so that a restore overwrites none

	nudge  sync.Mutex
	nudged chan struct{} // closed to have the asides said now

	ctx     context.Context // ends when the node stops
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	started atomic.Bool

	shortening atomic.Bool // a snapshot is under way
	stopped    atomic.Bool

	// Set once by Start, before started.
	raft      *raft.Raft
	transport *raft.NetworkTransport
	store     *store // nil when everything is in memory
	addrs     map[string]string
}

// New checks the configuration and takes the port, so that Addr is known.
func New(c Config) (*Node, error) {
	c, err := c.prepared()
	if err != nil {
		return nil, err
	}
	ln, err := bind(c.Network, c.Listen, c.ID)
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: c, id: c.ID, log: c.Log, refused: newRefusals(c.Log), conns: newConns(), heard: newHeard(), written: make(chan struct{}, 1), nudged: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.fsm = newFSM(checks{spec: c.CheckSpec, plan: c.CheckPlan, holds: c.Holds}, c.Log)
	n.listen = newListener(ln, c.Certs, c.Log, n.refused, n.conns, n.member)
	n.listen.propose, n.listen.hear = n.serveProposal, n.hear
	return n, nil
}

// Addr is the address listened on.
func (n *Node) Addr() net.Addr { return n.listen.ln.Addr() }

// SetPeers replaces the voters of the configuration. It counts only before Start, for nodes that listen on port 0.
func (n *Node) SetPeers(peers []Peer) { n.cfg.Peers = slices.Clone(peers) }

// State is the last state applied here. It never waits, is never nil, and must not be written to.
func (n *Node) State() *State { return n.fsm.state.Load() }

// Start opens the log, restores the last known committed state, and takes part. It returns when the node serves, which
// does not need a leader. ctx bounds starting only.
func (n *Node) Start(ctx context.Context) error {
	if n.stopped.Load() || n.started.Load() {
		return errors.New("starting consensus node: it was started before: make a new one")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting consensus node: %w", err)
	}
	if err := n.open(); err != nil {
		n.abandon()
		return fmt.Errorf("starting consensus node %s: %w", n.id, err)
	}
	n.started.Store(true)
	n.wg.Go(func() { n.listen.run(n.ctx) })
	n.wg.Go(n.follow)
	n.wg.Go(n.announce)
	n.wg.Go(n.converse)
	n.wg.Go(n.tend)
	n.wg.Go(n.wonder)
	return nil
}

// open builds raft on its stores and its transport.
func (n *Node) open() error {
	self := cmp.Or(n.cfg.Advertise, addressIn(n.cfg.Peers, n.id), n.Addr().String())
	conf, err := voters(n.id, self, n.cfg.Peers)
	if err != nil {
		return err
	}
	n.addrs = map[string]string{}
	names := map[string]string{}
	for _, v := range conf.Servers {
		n.addrs[string(v.ID)], names[string(v.Address)] = string(v.Address), string(v.ID)
	}
	log := hcLogger{to: n.log, echo: &echo{names: names}}
	n.dialer = dialer{network: n.cfg.Network, ctx: n.ctx, certs: n.cfg.Certs, names: names, refused: n.refused, conns: n.conns, log: log}
	logs, stable, snaps, err := n.stores(log)
	if err != nil {
		return err
	}
	if n.store != nil {
		if err := errors.Join(intact(n.cfg.Dir, snaps, n.store), n.store.checkRoom()); err != nil {
			return err
		}
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: provider(n.addrs), Logger: log,
		Stream:  &streams{dialer: n.dialer, accept: n.listen.streams, advertise: self, stop: make(chan struct{})},
		MaxPool: poolSize, Timeout: rpcTimeout, MaxRPCsInFlight: unpipelined,
	})
	c := n.cfg.raftConfig(n.store != nil, log)
	if !n.cfg.Join {
		if err := bootstrap(c, logs, stable, snaps, n.transport, conf); err != nil {
			return err
		}
	}
	base, err := baseSnapshot(logs, snaps, n.transport)
	if err != nil {
		return err
	}
	if n.store != nil {
		n.store.base = base
	}
	n.raft, err = raft.NewRaft(c, n.fsm, logs, stable, snaps, n.transport)
	if err == nil && n.store != nil {
		n.store.disk.armed.Store(true)
	}
	return err
}

func (n *Node) stores(log hcLogger) (raft.LogStore, raft.StableStore, raft.SnapshotStore, error) {
	if n.cfg.Dir == "" {
		mem := raft.NewInmemStore()
		return mem, mem, raft.NewInmemSnapshotStore(), nil
	}
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return nil, nil, nil, err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Clean(n.cfg.Dir), retained, log)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening snapshots in %s: %w", n.cfg.Dir, err)
	}
	// Snapshots hold the state's secrets, and raft writes them for everybody to read: dir may be an operator's own.
	if err := os.Chmod(filepath.Join(n.cfg.Dir, snapshotDir), 0o700); err != nil {
		return nil, nil, nil, fmt.Errorf("closing the snapshots in %s to others: %w", n.cfg.Dir, err)
	}
	n.store, err = openStore(n.cfg.Dir)
	if err != nil {
		return nil, nil, nil, err
	}
	n.store.disk.log, n.store.disk.observe = n.log, n.cfg.OnDisk
	if n.ctx != nil { // there is none while recovering
		n.store.disk.done = n.ctx.Done()
	}
	return n.store, n.store, snaps, nil
}

// follow tells OnApply of new states, and records how far they are applied once it is quiet.
func (n *Node) follow() {
	var told, marked uint64
	quiet := time.NewTimer(markDelay)
	defer quiet.Stop()
	for {
		changed := n.fsm.next()
		if s := n.State(); s.Index != told {
			told = s.Index
			if n.cfg.OnApply != nil {
				n.cfg.OnApply(s)
			}
			quiet.Reset(markDelay)
			n.shorten()
		}
		select {
		case <-changed:
		case <-quiet.C:
			marked = n.mark(marked)
		case <-n.ctx.Done():
			return
		}
	}
}

// shorten has a snapshot taken when the log has grown by more than a start should have to read again. Raft itself counts
// entries, and a spec may have a thousand times the size of another.
func (n *Node) shorten() {
	if n.store == nil || n.fsm.since.Load() < snapshotBytes || !n.shortening.CompareAndSwap(false, true) {
		return
	}
	n.wg.Go(func() {
		defer n.shortening.Store(false)
		// What raft refuses it has a reason for, such as nothing new; the next entry tries again.
		_ = n.await(n.ctx, n.raft.Snapshot())
	})
}

// mark records the applied index if it moved since the last record.
func (n *Node) mark(last uint64) uint64 {
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

// announce lets the others know at once what was committed here. Raft tells its followers with the next entry, or when
// CommitTimeout has passed without one; a barrier is such an entry, and an empty one. Nobody waits for it: raft never
// answers for a barrier that it takes as it shuts down.
func (n *Node) announce() {
	for {
		select {
		case <-n.written:
			n.raft.Barrier(enqueueTimeout) // who no longer leads has nothing to announce
		case <-n.ctx.Done():
			return
		}
	}
}

// member is the rule for Raft streams: only those that the configuration lists, or that an operator has added, speak
// Raft with this node.
func (n *Node) member(id identity.ID) error {
	if err := globalOnly(id); err != nil {
		return err
	}
	if _, ok := n.addrs[id.Name]; !ok && !n.isMember(id.Name) {
		return fmt.Errorf("global node %s is neither among the configured raft peers nor a member: list it under raft.peers on every node, or `spillway members add` it, or stop it", id.Name)
	}
	return nil
}

// addressOf is where a node lives by our configuration, or else by raft's.
func (n *Node) addressOf(id, otherwise string) string { return cmp.Or(n.addrs[id], otherwise) }

// provider lets the address of a voter change without a change of membership.
type provider map[string]string

// ServerAddr is a voter's configured address; on an error raft takes the address it was added with.
func (p provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a, ok := p[string(id)]; ok {
		return raft.ServerAddress(a), nil
	}
	return "", fmt.Errorf("no address configured for %s", id)
}

func addressIn(peers []Peer, id string) string {
	for _, p := range peers {
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}
