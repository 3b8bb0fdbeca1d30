package consensus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// kindProgress asks any node up to which index it has applied the log. It never enters the log.
const kindProgress commandKind = 0x7d

// Actions of a kindPendingVoter.
const (
	actionAddPending    = "want"
	actionRemovePending = "voted" // or is gone, or is to follow only
)

const (
	catchUpTimeout   = 7 * time.Second // of a new voter, from the change to its vote
	progressInterval = 100 * time.Millisecond
	progressTimeout  = time.Second
	caughtUpEntries  = 64 // entries, as many as one message of raft's carries

	addedWithoutVote = 1 // as the value of a refusal: the node is a member without a vote
	alreadyRemoved   = 2 // likewise: the node to be removed is no member

	diskCannotWrite = 1 // as the value of an answer to kindProgress: the node's disk takes no writes
)

// addVoter adds a node without a vote first, and grants the vote when it has caught up. A voter that lags or is down
// counts toward the size of the majority and cannot contribute to it: with two of three lost, or one of two, no write
// would succeed.
func (n *Node) addVoter(ctx context.Context, m membershipChange) (commandResult, error) {
	id, addr := raft.ServerID(m.ID), raft.ServerAddress(m.Addr)
	if !n.isVoter(m.ID) {
		if err := n.awaitFuture(ctx, n.raft.AddNonvoter(id, addr, 0, enqueueTimeout)); err != nil {
			return commandResult{}, err
		}
		if why := n.awaitCaughtUp(ctx, m); why != "" {
			return n.deferVote(ctx, m.ID, why)
		}
	}
	if err := n.awaitFuture(ctx, n.raft.AddVoter(id, addr, 0, enqueueTimeout)); err != nil {
		return commandResult{}, err
	}
	return commandResult{Code: codeOK, Index: n.State().Index}, n.updatePendingVoter(ctx, m.ID, actionRemovePending)
}

// deferVote adds a member to the pending voters. It gets its vote when it keeps up, which may be long after the
// operator's command.
func (n *Node) deferVote(ctx context.Context, id, why string) (commandResult, error) {
	if err := n.updatePendingVoter(ctx, id, actionAddPending); err != nil {
		return commandResult{}, err
	}
	then := "it gets its vote when it has kept up for " + promoteAfter.String() + ": see `spillway members`"
	if !n.hasGossip() {
		then = "when it follows, add it again"
	}
	r := newRefusal("%s is a member without a vote: %s: %s", id, why, then)
	r.Value = addedWithoutVote
	return r, nil
}

// updatePendingVoter adds a member to the pending voters or removes it, if that is not already so.
func (n *Node) updatePendingVoter(ctx context.Context, id, action string) error {
	if slices.Contains(n.State().PendingVoters, id) == (action == actionAddPending) {
		return nil
	}
	c := n.newCommand(kindPendingVoter)
	c.Path, c.Action = id, action
	data, err := encodeCommand(c)
	if err != nil {
		return err
	}
	r, err := n.applyAsLeader(ctx, data)
	if err == nil {
		err = r.toError()
	}
	return err
}

func (n *Node) isVoter(id string) bool {
	for _, m := range n.Members() {
		if m.ID == id {
			return m.Voter
		}
	}
	return false
}

// awaitCaughtUp asks a member until it has applied its own addition and lacks at most one message of later entries.
// Otherwise it returns what is missing.
func (n *Node) awaitCaughtUp(ctx context.Context, m membershipChange) (why string) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for added := n.raft.CommitIndex(); ctx.Err() == nil; sleepFor(ctx, progressInterval) {
		goal := n.raft.CommitIndex()
		at, _, err := n.queryProgress(ctx, n.resolveNodeAddr(m.ID, m.Addr))
		switch {
		case err != nil:
			why = fmt.Sprintf("it did not answer at %s within %s (%v): is it running, with raft.join: true?", m.Addr, catchUpTimeout, err)
		case at >= added && at+caughtUpEntries >= goal:
			return ""
		default:
			why = fmt.Sprintf("after %s it has %d of %d log entries", catchUpTimeout, at, goal)
		}
	}
	return why
}

// queryProgress asks the node at addr for its applied index, and whether its disk fails to take writes.
func (n *Node) queryProgress(ctx context.Context, addr string) (at uint64, failing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	r, err := n.sendCommand(ctx, addr, []byte{byte(kindProgress)})
	return r.Index, err == nil && r.Value == diskCannotWrite, err
}
