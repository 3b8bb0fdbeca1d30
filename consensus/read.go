package consensus

import (
	"context"
	"errors"
	"fmt"
)

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
