package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ownWriteWait bounds how long an answered write waits for its effect on this node's state.
const ownWriteWait = 2 * time.Second

// appliedState is the last applied state, with a signal of its replacement.
type appliedState struct {
	current atomic.Pointer[State] // one writer: raft's FSM goroutine

	mu      sync.Mutex
	changed chan struct{} // closed when current was replaced, then replaced itself
}

func newAppliedState() *appliedState {
	a := &appliedState{changed: make(chan struct{})}
	a.current.Store(&State{})
	return a
}

// State returns the last state applied here. It never waits, is never nil, and must not be written to.
func (a *appliedState) State() *State { return a.current.Load() }

func (a *appliedState) publishState(s *State) {
	a.current.Store(s)
	a.mu.Lock()
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
}

// changeSignal returns a channel that is closed at the first publication after the call.
func (a *appliedState) changeSignal() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// waitForIndex waits until the state has reached index. stopped is closed when the node stops.
func (a *appliedState) waitForIndex(ctx context.Context, stopped <-chan struct{}, index uint64) error {
	for {
		changed := a.changeSignal()
		if a.State().Index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopped:
			return ErrStopped
		}
	}
}

// waitForWrite waits briefly until the state contains what the leader has just written, so that a caller reads its
// own writes.
func (a *appliedState) waitForWrite(ctx context.Context, stopped <-chan struct{}, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, ownWriteWait)
	defer cancel()
	_ = a.waitForIndex(ctx, stopped, index) // the write has succeeded in any case
}

// kindReadIndex asks the leader for the index up to which a reader must have applied the log. It never enters the
// log.
const kindReadIndex commandKind = 0x7e

// errOldLeader means that the leader's release does not support read indexes.
var errOldLeader = errors.New("the leader is of a release without linearizable reads: upgrade it, or read at the leader after a write")

// stateReader reads the state, here or as of now.
type stateReader struct {
	applied  *appliedState
	proposer *proposer
}

// State returns the last state applied here. It never waits, is never nil, and must not be written to.
func (r *stateReader) State() *State { return r.applied.State() }

// ReadLinearizable returns State once it contains every write that any client completed before the call. It needs a
// leader, waits for one for up to seven seconds or seven heartbeats, and costs a round trip to a majority. Its errors
// are ErrNoLeader or ErrStopped.
func (r *stateReader) ReadLinearizable(ctx context.Context) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, r.proposer.leaderWait())
	defer cancel()
	index, err := r.queryReadIndex(ctx)
	switch {
	case errors.Is(err, ErrStopped), errors.Is(err, errOldLeader):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (reading: %w)", ErrNoLeader, err)
	}
	if err := r.applied.waitForIndex(ctx, r.proposer.stopping.Done(), index); err != nil {
		return nil, fmt.Errorf("%w (this node has log index %d of %d: %w)", ErrNoLeader, r.State().Index, index, err)
	}
	return r.State(), nil
}

// queryReadIndex asks the leader. A repeat is harmless.
func (r *stateReader) queryReadIndex(ctx context.Context) (uint64, error) {
	a, err := r.proposer.proposeWithRetry(ctx, []byte{byte(kindReadIndex)}, true, r.proposer.leaderWait())
	if err != nil {
		return 0, err
	}
	if a.Code != codeOK {
		return 0, errOldLeader
	}
	return a.Index, nil
}
