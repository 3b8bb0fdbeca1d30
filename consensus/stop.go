package consensus

import (
	"context"
	"fmt"
)

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
