package consensus

import (
	"context"
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
