package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// raftCalls counts the calls that wait for an answer of raft. Raft never answers a call that it accepts during its
// shutdown, and the goroutine of such a call would remain until the process ends. A node therefore stops accepting
// calls, and waits for the pending ones, before it shuts raft down.
type raftCalls struct {
	mu      sync.Mutex
	pending int
	drained chan struct{} // nil: calls are accepted; closed when the last pending call has ended
}

// beginCall counts a call. It returns false once closeAndDrain was called: the call must not be made. Otherwise endCall
// must follow.
func (c *raftCalls) beginCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained != nil {
		return false
	}
	c.pending++
	return true
}

func (c *raftCalls) endCall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending--; c.pending == 0 && c.drained != nil {
		close(c.drained)
	}
}

// closeAndDrain refuses all further calls, and waits until the pending ones have ended or ctx ends. It returns how
// many are still pending. Call it once.
func (c *raftCalls) closeAndDrain(ctx context.Context) (pending int) {
	c.mu.Lock()
	drained := make(chan struct{})
	if c.drained = drained; c.pending == 0 {
		close(drained)
	}
	c.mu.Unlock()
	select {
	case <-drained:
		return 0
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

// awaitFuture makes a call and waits for its answer, at most until ctx ends. Raft answers when it has committed, loses
// the lead or stops.
func (c *raftCalls) awaitFuture(ctx context.Context, start func() raft.Future) error {
	if !c.beginCall() {
		return errUnsent{ErrStopped}
	}
	f := start()
	done := make(chan error, 1)
	go func() {
		defer c.endCall()
		done <- f.Error()
	}()
	select {
	case err := <-done:
		return classifyRaftError(err)
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, ctx.Err())
	}
}

// classifyRaftError sorts raft's errors by whether the entry may be in the log.
func classifyRaftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errUnsent{fmt.Errorf("%w (%w)", ErrNotLeader, err)}
	}
	return fmt.Errorf("%w (%w)", ErrUnknownOutcome, err)
}
