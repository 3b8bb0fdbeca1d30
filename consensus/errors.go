package consensus

import (
	"errors"
	"fmt"
)

var (
	// ErrNoLeader means that nothing was written: there was no leader while the write could wait.
	ErrNoLeader = errors.New("no leader: a majority of global nodes must be up and connected")
	// ErrNotLeader means that nothing was done: only the leader can do this.
	ErrNotLeader = errors.New("this node is not the leader")
	// ErrUnknownOutcome means that a write was sent and its result is unknown. Read the state before writing again.
	ErrUnknownOutcome = errors.New("the leader was lost during the write, which may have succeeded: read the state before trying again")
	// ErrStopped means that the node is stopping or was never started.
	ErrStopped = errors.New("consensus node is not running")
)

// ErrConflict means that a write was based on a version that is no longer the current one.
type ErrConflict struct {
	Current uint64 // the version to read and base the next try on
}

// Error implements error.
func (e ErrConflict) Error() string {
	return fmt.Sprintf("another write came first: the current version is %d: read it and apply the change to that", e.Current)
}

// ErrRefused means that the rules of the state refuse a write, independent of the proposer.
type ErrRefused struct {
	Reason string
}

// Error implements error.
func (e ErrRefused) Error() string { return e.Reason }
