package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// kindReadIndex asks the leader up to where a reader must have applied the log. It never enters the log.
const kindReadIndex kind = 0x7e

// errOldLeader means that the leader is of a release that cannot say.
var errOldLeader = errors.New("the leader is of a release without linearizable reads: upgrade it, or read at the leader after a write")

// Read is State once it holds everything that was written, by anybody, before the call. It needs a leader, waits up to
// seven seconds, or seven heartbeats, for one, and costs a round trip to a majority. Its errors are ErrNoLeader or ErrStopped.
func (n *Node) Read(ctx context.Context) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, n.hold())
	defer cancel()
	index, err := n.readIndex(ctx)
	switch {
	case errors.Is(err, ErrStopped), errors.Is(err, errOldLeader):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (reading: %w)", ErrNoLeader, err)
	}
	if err := n.reach(ctx, index); err != nil {
		return nil, fmt.Errorf("%w (this node has log index %d of %d: %w)", ErrNoLeader, n.State().Index, index, err)
	}
	return n.State(), nil
}

// readIndex asks whoever leads. To ask again is harmless.
func (n *Node) readIndex(ctx context.Context) (uint64, error) {
	r, err := n.persist(ctx, []byte{byte(kindReadIndex)}, true, n.hold())
	if err != nil {
		return 0, err
	}
	if r.Code != codeOK {
		return 0, errOldLeader
	}
	return r.Index, nil
}

// readHere is the index of a read at the leader: where its state is once an entry of the leader's own, proposed after
// the call, has been committed and applied. Raft's VerifyLeader would save the entry and is not enough: it counts
// answers to requests that were sent before the call, and a leader that was paused finds such answers waiting.
func (n *Node) readHere(ctx context.Context) (result, error) {
	if err := n.await(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return result{}, err
	}
	return result{Code: codeOK, Index: n.State().Index}, nil
}

// reach waits until the state here is as of index or later.
func (n *Node) reach(ctx context.Context, index uint64) error {
	for {
		changed := n.fsm.next()
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

// catchUp waits a moment for our own state to hold what the leader has just written, so that a caller reads its writes.
func (n *Node) catchUp(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = n.reach(ctx, index) // the write stands all the same
}
