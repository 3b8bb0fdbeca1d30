package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spillway-lb/spillway/internal/identity"
)

const (
	transferTimeout = 5 * time.Second
	// drainTimeout bounds how long Stop waits for raft's answers. It is longer than enqueueTimeout, and than a leader
	// without a majority keeps the lead, so only a disk that blocks reaches it.
	drainTimeout = 3 * time.Second
	stopTimeout  = 10 * time.Second
)

// Node is one member of the cluster. Safe for concurrent use. It starts and stops the parts; each part has its own
// state, and names in its fields what it needs of the others.
type Node struct {
	// The parts whose exported methods callers use.
	*clusterView
	*stateReader
	*stateWriter
	*memberWriter
	*memberMonitor
	*archiver

	cfg      Config
	id       string
	log      *slog.Logger
	refusals *refusalLog
	conns    *connSet
	listener *raftListener
	dialer   *peerDialer
	contacts *contactTimes
	book     *addressBook
	raft     *raftHandle
	storage  *raftStorage
	fsm      *fsm

	proposer  *proposer
	commands  *commandLog
	changer   *memberChanger
	autopilot *autopilot
	gossip    *gossiper
	watch     *membershipWatch
	follower  *stateFollower

	ctx     context.Context // ends when the node stops
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	stopped atomic.Bool

	transport raftTransport // set by Start
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
	n := &Node{cfg: c, id: c.ID, log: c.Log, refusals: newRefusalLog(c.Log), conns: newConnSet(), contacts: newContactTimes(), book: newAddressBook(), raft: &raftHandle{}, storage: &raftStorage{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.fsm = newFSM(c.stateChecks(), c.Log)
	n.dialer = &peerDialer{
		network: c.Network, ctx: n.ctx, certs: c.Certs, book: n.book, refusals: n.refusals, conns: n.conns,
		log: hcLogger{logger: c.Log, dedup: &logDeduplicator{nodeNames: n.book.names}},
	}
	n.connectParts()
	n.listener = newRaftListener(ln, c.Certs, c.Log, n.refusals, n.conns, n.checkRaftPeer)
	n.listener.serveProposal, n.listener.receiveGossip = n.newProposalServer().serveProposal, n.gossip.receiveGossip
	return n, nil
}

// connectParts creates the parts. None of them calls raft before Start.
func (n *Node) connectParts() {
	c, applied := n.cfg, n.fsm.applied
	peers := &peerClient{dialPeer: n.dialer.dialPeer}
	hasGossip := c.GossipMessage != nil && c.OnGossip != nil
	n.clusterView = &clusterView{id: n.id, raft: n.raft, book: n.book, applied: applied}
	n.commands = &commandLog{raft: n.raft, calls: &n.raft.calls, fsm: n.fsm, onCommit: c.OnCommit, committed: make(chan struct{}, 1)}
	n.changer = &memberChanger{
		id: n.id, raft: n.raft, calls: &n.raft.calls, cluster: n.clusterView, book: n.book, applied: applied, hasGossip: hasGossip,
		applyCommand: n.commands.applyCommand, queryProgress: peers.queryProgress,
	}
	n.proposer = &proposer{
		cluster: n.clusterView, running: n.raft.running.Load, stopping: n.ctx, applied: applied, send: peers.sendCommand,
		report: c.OnProposal, heartbeat: c.Heartbeat,
	}
	n.proposer.applyHere = n.newProposalServer().applyAsLeader
	n.memberMonitor = &memberMonitor{
		id: n.id, hasGossip: hasGossip, members: n.Members, applied: applied, contacts: n.contacts, diskFailing: n.DiskFailing,
		commitIndex: func() uint64 { return n.raft.CommitIndex() }, queryProgress: peers.queryProgress,
	}
	n.stateReader = &stateReader{applied: applied, proposer: n.proposer}
	n.stateWriter = &stateWriter{
		id: n.id, proposer: n.proposer, applied: applied, isLeader: n.IsLeader, awaitBarrier: n.commands.awaitBarrier,
		currentTerm: func() uint64 { return n.raft.CurrentTerm() }, silentVoters: n.SilentVoters,
	}
	n.memberWriter = &memberWriter{proposer: n.proposer, isMember: n.clusterView.isMember, recordAudit: n.RecordAudit}
	n.archiver = &archiver{
		raft: n.raft, calls: &n.raft.calls, applied: applied, holdTimes: c.HoldTimes, isLeader: n.IsLeader, awaitBarrier: n.AwaitBarrier,
		whileNoProposal: n.commands.whileNoProposal, recordAudit: n.RecordAudit,
	}
	n.autopilot = &autopilot{
		id: n.id, log: n.log, config: c.Autopilot, cluster: n.clusterView, members: n.memberMonitor, ask: peers.askAboutMember,
		changeMembership: n.changer.changeMembership, recordAudit: n.RecordAudit,
	}
	n.gossip = &gossiper{
		id: n.id, members: n.Members, dialPeer: n.dialer.dialPeer, message: c.GossipMessage, onMessage: c.OnGossip,
		contacts: n.contacts, conns: n.conns, refusals: n.refusals, now: make(chan struct{}),
	}
	n.watch = &membershipWatch{id: n.id, log: n.log, book: n.book, cluster: n.clusterView, ask: peers.askAboutMember}
	n.follower = &stateFollower{
		log: n.log, applied: applied, logBytes: &n.fsm.bytesSinceSnapshot, storage: n.storage, onApply: c.OnApply,
		configurationIndex: &n.fsm.configurationIndex,
		takeSnapshot: func(ctx context.Context) error {
			return n.raft.calls.awaitFuture(ctx, func() raft.Future { return n.raft.Snapshot() })
		},
	}
}

func (n *Node) newProposalServer() *proposalServer {
	return &proposalServer{
		log: n.log, refusals: n.refusals, running: n.raft.running.Load, cluster: n.clusterView, applied: n.fsm.applied,
		sinceContact: n.contacts.sinceContact, diskFailing: n.DiskFailing,
		applyCommand: n.commands.applyCommand, readIndex: n.commands.readIndex, changeMembership: n.changer.changeMembership,
	}
}

// Addr is the listening address.
func (n *Node) Addr() net.Addr { return n.listener.ln.Addr() }

// SetPeers replaces the voters of the configuration. It has an effect only before Start, for nodes that listen on
// port 0.
func (n *Node) SetPeers(peers []RaftPeer) { n.cfg.Peers = slices.Clone(peers) }

// Start opens the log, restores the last known committed state, and joins the cluster. It returns when that state is
// applied and the node serves, which needs no leader. ctx bounds the start only.
func (n *Node) Start(ctx context.Context) error {
	if n.stopped.Load() || n.raft.running.Load() {
		return errors.New("starting consensus node: it was started before: create a new one")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting consensus node: %w", err)
	}
	replayed, err := n.openRaft()
	if err != nil {
		n.undoStart()
		return fmt.Errorf("starting consensus node %s: %w", n.id, err)
	}
	if err := n.fsm.applied.waitForIndex(ctx, n.ctx.Done(), replayed); err != nil {
		_ = n.raft.Shutdown().Error() // the end of ctx is the error to return
		n.undoStart()
		return fmt.Errorf("starting consensus node %s: replaying the log up to index %d: %w", n.id, replayed, err)
	}
	n.raft.running.Store(true)
	for _, run := range []func(context.Context){
		n.listener.acceptLoop, n.follower.followState, n.commands.announceCommits, n.gossip.runGossip, n.autopilot.runAutopilot, n.watch.watchMembership,
	} {
		n.wg.Go(func() { run(n.ctx) })
	}
	return nil
}

// checkRaftPeer admits to Raft streams only the nodes that the configuration lists or that an operator has added.
func (n *Node) checkRaftPeer(id identity.ID) error {
	if err := requireGlobalRole(id); err != nil {
		return err
	}
	if _, ok := n.book.addrs[id.Name]; !ok && !n.clusterView.isMember(id.Name) {
		return fmt.Errorf("global node %s is neither among the configured raft peers nor a member: list it under raft.peers on every node, or `spillway members add` it, or stop it", id.Name)
	}
	return nil
}

// GossipNow sends the next gossip message at once instead of at the next interval.
func (n *Node) GossipNow() { n.gossip.gossipNow() }

// NonMember returns ok if other members report that this node is not a member.
func (n *Node) NonMember() (o NonMember, ok bool) { return n.watch.reportedNonMember() }

// AutopilotConfig returns the settings that apply while this node is the leader.
func (n *Node) AutopilotConfig() AutopilotConfig { return n.cfg.Autopilot }

// DiskFailures counts the writes that the disk failed to take.
func (n *Node) DiskFailures() uint64 {
	if !n.raft.running.Load() {
		return 0
	}
	return n.storage.failedWrites()
}

// DiskFailing reports whether the last write to disk failed: this node takes no part in changes until a write
// succeeds.
func (n *Node) DiskFailing() bool { return n.raft.running.Load() && n.storage.isFailing() }

// RefusedConns counts connections refused because of the peer's certificate or because of malformed bytes.
func (n *Node) RefusedConns() uint64 { return n.refusals.count.Load() }

// Stop transfers leadership, so that the cluster needs no election timeout, and then ends everything that the node
// started. It is bounded by ctx and by ten seconds. The node stays a voter.
func (n *Node) Stop(ctx context.Context) error {
	if !n.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if !n.raft.running.Load() {
		n.undoStart()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	n.handOverOnStop(ctx)
	n.drainRaftCalls(ctx)
	n.cancel()
	err := n.shutdownRaft(ctx)
	n.closeConnections()
	if err != nil {
		return err // raft may still use the store: leave it open
	}
	if err := n.waitForGoroutines(ctx); err != nil {
		return err
	}
	n.follower.recordApplied(0)
	return n.closeStorage()
}

// handOverOnStop transfers leadership to the most up-to-date voter, if there is another.
func (n *Node) handOverOnStop(ctx context.Context) {
	if !n.IsLeader() || len(n.Status().Voters) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := n.raft.calls.awaitFuture(ctx, n.raft.LeadershipTransfer); err != nil {
		n.log.Warn("transferring leadership failed: the others will elect a leader", "error", err)
	}
}

// drainRaftCalls ends the calls of raft: see raftCalls.
func (n *Node) drainRaftCalls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if pending := n.raft.calls.closeAndDrain(ctx); pending > 0 {
		n.log.Warn("raft did not answer some calls in time: the node stops without their outcome", "calls", pending, "waited", drainTimeout)
	}
}

func (n *Node) shutdownRaft(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- n.raft.Shutdown().Error() }()
	n.closeConnections() // a snapshot in transfer to a dead peer must not delay it
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("stopping raft of %s: %w", n.id, ctx.Err())
	}
}

// closeConnections closes the port and every connection; it may be called more than once.
func (n *Node) closeConnections() {
	_ = n.listener.ln.Close()
	if n.transport != nil {
		_ = n.transport.Close()
		n.transport.CloseStreams()
	}
	n.conns.closeAll()
}

// waitForGoroutines waits for the node's goroutines.
func (n *Node) waitForGoroutines(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		n.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping consensus node %s: %w", n.id, ctx.Err())
	}
}

// undoStart undoes New, or a Start that failed halfway.
func (n *Node) undoStart() {
	n.stopped.Store(true)
	n.cancel()
	n.closeConnections()
	if err := n.closeStorage(); err != nil {
		n.log.Warn("closing the log failed", "error", err)
	}
}

func (n *Node) closeStorage() error {
	if err := n.storage.closeStores(); err != nil {
		return fmt.Errorf("closing the log of %s: %w", n.id, err)
	}
	return nil
}
