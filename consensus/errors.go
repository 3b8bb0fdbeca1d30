package consensus

import (
	"errors"
	"fmt"
)

var (
	// ErrNoLeader means that nothing was written: there was no leader for as long as the write could wait.
	ErrNoLeader = errors.New("no leader: a majority of global nodes must be up and connected")
	// ErrNotLeader means that nothing was done: only the leader can do this.
	ErrNotLeader = errors.New("this node is not the leader")
	// ErrUnknownOutcome means that a write was sent and its fate was not learnt: look at the state before writing again.
	ErrUnknownOutcome = errors.New("the leader was lost while it wrote: look at the state before trying again")
	// ErrStopped means that the node is stopping or was never started.
	ErrStopped = errors.New("consensus node is not running")
)

// ErrConflict means that a write was based on a version that is no longer the current one.
type ErrConflict struct {
	Current uint64 // the version to read and base the next try on
}

// Error says what to do next.
func (e ErrConflict) Error() string {
	return fmt.Sprintf("somebody else wrote first: the current version is %d: read it and apply the change to that", e.Current)
}

// ErrRefused means that the state's rules refuse a write, whoever proposes it.
type ErrRefused struct {
	Reason string
}

// Error is the reason.
func (e ErrRefused) Error() string { return e.Reason }
