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
	alreadyRemoved   = 2 // likewise: the node to be removed is not a member

	diskCannotWrite = 1 // as the value of an answer to kindProgress: the node's disk takes no writes
)

// memberChanger changes the membership, on the leader.
type memberChanger struct {
	id   string
	raft interface {
		AddNonvoter(id raft.ServerID, addr raft.ServerAddress, prevIndex uint64, timeout time.Duration) raft.IndexFuture
		AddVoter(id raft.ServerID, addr raft.ServerAddress, prevIndex uint64, timeout time.Duration) raft.IndexFuture
		RemoveServer(id raft.ServerID, prevIndex uint64, timeout time.Duration) raft.IndexFuture
		LeadershipTransfer() raft.Future
		LeadershipTransferToServer(id raft.ServerID, addr raft.ServerAddress) raft.Future
		CommitIndex() uint64
	}
	calls   *raftCalls
	cluster interface {
		Members() []Member
		isMember(id string) bool
	}
	book      *addressBook
	applied   *appliedState
	hasGossip bool

	applyCommand  func(ctx context.Context, data []byte) (commandResult, error)
	queryProgress func(ctx context.Context, addr string) (at uint64, failing bool, err error)
}

// changeMembership makes the change on the leader.
func (c *memberChanger) changeMembership(ctx context.Context, m membershipChange) (commandResult, error) {
	if m.Op == "lead" && m.ID == c.id {
		return commandResult{Code: codeOK, Index: c.applied.State().Index}, nil // already in the wanted state
	}
	if why := findObjection(m, c.cluster.Members(), c.book.addrs); why != "" {
		r := newRefusal("%s", why)
		if m.Op == "remove" && !c.cluster.isMember(m.ID) {
			r.Value = alreadyRemoved
		}
		return r, nil
	}
	if m.Op == "add" && m.Voter {
		return c.addVoter(ctx, m)
	}
	if err := c.calls.awaitFuture(ctx, func() raft.Future { return c.startChange(m) }); err != nil {
		return commandResult{}, err
	}
	if m.Op != "lead" {
		if err := c.updatePendingVoter(ctx, m.ID, actionRemovePending); err != nil {
			return commandResult{}, err
		}
	}
	return commandResult{Code: codeOK, Index: c.applied.State().Index}, nil
}

// startChange makes raft begin a change.
func (c *memberChanger) startChange(m membershipChange) raft.Future {
	id, addr := raft.ServerID(m.ID), raft.ServerAddress(m.Addr)
	switch {
	case m.Op == "remove":
		return c.raft.RemoveServer(id, 0, enqueueTimeout)
	case m.Op == "lead":
		return c.startTransfer(m.ID)
	case m.Voter:
		return c.raft.AddVoter(id, addr, 0, enqueueTimeout)
	}
	return c.raft.AddNonvoter(id, addr, 0, enqueueTimeout)
}

func (c *memberChanger) startTransfer(to string) raft.Future {
	if to == "" {
		return c.raft.LeadershipTransfer()
	}
	return c.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(c.book.resolveNodeAddr(to, c.memberAddr(to))))
}

func (c *memberChanger) memberAddr(id string) string {
	m, _ := findMember(c.cluster.Members(), id)
	return m.Addr
}

// addVoter adds a node without a vote first, and grants the vote when it has caught up. A voter that lags or is down
// counts toward the size of the majority and cannot contribute to it: with two of three lost, or one of two, no write
// would succeed.
func (c *memberChanger) addVoter(ctx context.Context, m membershipChange) (commandResult, error) {
	if !c.isVoter(m.ID) {
		nonvoter := m
		nonvoter.Voter = false
		if err := c.calls.awaitFuture(ctx, func() raft.Future { return c.startChange(nonvoter) }); err != nil {
			return commandResult{}, err
		}
		if why := c.awaitCaughtUp(ctx, m); why != "" {
			return c.deferVote(ctx, m.ID, why)
		}
	}
	if err := c.calls.awaitFuture(ctx, func() raft.Future { return c.startChange(m) }); err != nil {
		return commandResult{}, err
	}
	return commandResult{Code: codeOK, Index: c.applied.State().Index}, c.updatePendingVoter(ctx, m.ID, actionRemovePending)
}

// deferVote adds a member to the pending voters. It gets its vote when it keeps up, which may be long after the
// operator's command.
func (c *memberChanger) deferVote(ctx context.Context, id, why string) (commandResult, error) {
	if err := c.updatePendingVoter(ctx, id, actionAddPending); err != nil {
		return commandResult{}, err
	}
	then := "it gets its vote when it has kept up for " + promoteAfter.String() + ": see `spillway members`"
	if !c.hasGossip {
		then = "add it again when it has caught up"
	}
	r := newRefusal("%s is a member without a vote: %s: %s", id, why, then)
	r.Value = addedWithoutVote
	return r, nil
}

// updatePendingVoter adds a member to the pending voters or removes it, if that is not already so.
func (c *memberChanger) updatePendingVoter(ctx context.Context, id, action string) error {
	if slices.Contains(c.applied.State().PendingVoters, id) == (action == actionAddPending) {
		return nil
	}
	vote := newCommand(kindPendingVoter)
	vote.Path, vote.Action = id, action
	data, err := encodeCommand(vote)
	if err != nil {
		return err
	}
	r, err := c.applyCommand(ctx, data)
	if err == nil {
		err = r.toError()
	}
	return err
}

func (c *memberChanger) isVoter(id string) bool {
	m, _ := findMember(c.cluster.Members(), id)
	return m.Voter
}

// awaitCaughtUp asks a member until it has applied its own addition and lacks at most one message of later entries.
// Otherwise it returns what is missing.
func (c *memberChanger) awaitCaughtUp(ctx context.Context, m membershipChange) (why string) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for added := c.raft.CommitIndex(); ctx.Err() == nil; sleepFor(ctx, progressInterval) {
		goal := c.raft.CommitIndex()
		at, _, err := c.queryProgress(ctx, c.book.resolveNodeAddr(m.ID, m.Addr))
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
