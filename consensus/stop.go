package consensus

import (
	"context"
	"fmt"
)

// Stop hands leadership on, so that nobody waits for an election, and then ends everything the node started. It is
// bounded by ctx and by ten seconds. Stopping is not leaving: the node stays a voter.
func (n *Node) Stop(ctx context.Context) error {
	if !n.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if !n.started.Load() {
		n.abandon()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	n.handOn(ctx)
	n.cancel()
	err := n.shutRaft(ctx)
	n.disconnect()
	if err != nil {
		return err // raft may still use the store: leave it open
	}
	if err := n.settle(ctx); err != nil {
		return err
	}
	n.mark(0)
	return n.closeStore()
}

// handOn transfers leadership to whichever voter is most up to date, if there is another.
func (n *Node) handOn(ctx context.Context) {
	if !n.IsLeader() || len(n.Status().Voters) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := n.await(ctx, n.raft.LeadershipTransfer()); err != nil {
		n.log.Warn("handing leadership on failed, the others will elect", "error", err)
	}
}

func (n *Node) shutRaft(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- n.raft.Shutdown().Error() }()
	n.disconnect() // a snapshot on its way to a dead peer must not hold it up
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("stopping raft of %s: %w", n.id, ctx.Err())
	}
}

// disconnect closes the port and every connection; it may be called more than once.
func (n *Node) disconnect() {
	_ = n.listen.ln.Close()
	if n.transport != nil {
		_ = n.transport.Close()
		n.transport.CloseStreams()
	}
	n.conns.closeAll()
}

// settle waits for the node's goroutines.
func (n *Node) settle(ctx context.Context) error {
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

// abandon undoes New, or a Start that failed half way.
func (n *Node) abandon() {
	n.stopped.Store(true)
	n.cancel()
	n.disconnect()
	if err := n.closeStore(); err != nil {
		n.log.Warn("closing the log failed", "error", err)
	}
}

func (n *Node) closeStore() error {
	if n.store == nil {
		return nil
	}
	if err := n.store.Close(); err != nil {
		return fmt.Errorf("closing the log of %s: %w", n.id, err)
	}
	return nil
}
