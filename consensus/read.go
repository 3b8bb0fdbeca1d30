package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// kindReadIndex asks the leader for the index up to which a reader must have applied the log. It never enters the
// log.
const kindReadIndex commandKind = 0x7e

// errOldLeader means that the leader's release does not support read indexes.
var errOldLeader = errors.New("the leader is of a release without linearizable reads: upgrade it, or read at the leader after a write")

// ReadLinearizable returns State once it contains every write that any client completed before the call. It needs a
// leader, waits for one for up to seven seconds or seven heartbeats, and costs a round trip to a majority. Its errors
// are ErrNoLeader or ErrStopped.
func (n *Node) ReadLinearizable(ctx context.Context) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, n.leaderWait())
	defer cancel()
	index, err := n.queryReadIndex(ctx)
	switch {
	case errors.Is(err, ErrStopped), errors.Is(err, errOldLeader):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (reading: %w)", ErrNoLeader, err)
	}
	if err := n.waitForIndex(ctx, index); err != nil {
		return nil, fmt.Errorf("%w (this node has log index %d of %d: %w)", ErrNoLeader, n.State().Index, index, err)
	}
	return n.State(), nil
}

// queryReadIndex asks the leader. A repeat is harmless.
func (n *Node) queryReadIndex(ctx context.Context) (uint64, error) {
	r, err := n.proposeWithRetry(ctx, []byte{byte(kindReadIndex)}, true, n.leaderWait())
	if err != nil {
		return 0, err
	}
	if r.Code != codeOK {
		return 0, errOldLeader
	}
	return r.Index, nil
}

// readIndexAsLeader returns the read index on the leader: the index of its state after an entry of its own, proposed
// after the call, is committed and applied. Raft's VerifyLeader would save the entry but is not sufficient: it counts
// answers to requests sent before the call, and a leader that was paused finds such answers waiting.
func (n *Node) readIndexAsLeader(ctx context.Context) (commandResult, error) {
	if err := n.awaitFuture(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return commandResult{}, err
	}
	return commandResult{Code: codeOK, Index: n.State().Index}, nil
}

// waitForIndex waits until the local state has reached index.
func (n *Node) waitForIndex(ctx context.Context, index uint64) error {
	for {
		changed := n.fsm.changeSignal()
		if n.State().Index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ctx.Done():
			return ErrStopped
		}
	}
}

// waitForWrite waits briefly until the local state contains what the leader has just written, so that a caller reads
// its own writes.
func (n *Node) waitForWrite(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = n.waitForIndex(ctx, index) // the write has succeeded in any case
}
