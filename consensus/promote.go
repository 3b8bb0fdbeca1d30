package consensus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// kindProgress asks any node how far it has applied the log. It never enters the log.
const kindProgress kind = 0x7d

// What a kindWant says of its member.
const (
	actionWant  = "want"
	actionVoted = "voted" // or is gone, or is to follow only
)

const (
	catchUpBound   = 7 * time.Second // of a new voter, from the change to its vote
	progressEvery  = 100 * time.Millisecond
	progressWithin = time.Second
	nearEnough     = 64 // entries, as many as one message of raft's carries

	addedWithoutVote = 1 // as a refusal's value: the member follows all the same
	goneAlready      = 2 // likewise: who is to be removed is no member

	cannotWrite = 1 // as the value of an answer to kindProgress: the node's disk takes no writes
)

// addVoter has a node follow first and gives it its vote when it has caught up. A voter that is not up to date, or not
// up at all, counts for the majority and cannot give its part: with two of three lost, or one of two, nobody could write.
func (n *Node) addVoter(ctx context.Context, m membership) (result, error) {
	id, addr := raft.ServerID(m.ID), raft.ServerAddress(m.Addr)
	if !n.votes(m.ID) {
		if err := n.await(ctx, n.raft.AddNonvoter(id, addr, 0, enqueueTimeout)); err != nil {
			return result{}, err
		}
		if why := n.awaitCaughtUp(ctx, m); why != "" {
			return n.postpone(ctx, m.ID, why)
		}
	}
	if err := n.await(ctx, n.raft.AddVoter(id, addr, 0, enqueueTimeout)); err != nil {
		return result{}, err
	}
	return result{Code: codeOK, Index: n.State().Index}, n.want(ctx, m.ID, actionVoted)
}

// postpone has a member down for a vote that it gets when it keeps up, which may be long after the operator went away.
func (n *Node) postpone(ctx context.Context, id, why string) (result, error) {
	if err := n.want(ctx, id, actionWant); err != nil {
		return result{}, err
	}
	then := "it gets its vote when it has kept up for " + steadyAfter.String() + ": see `spillway members`"
	if !n.converses() {
		then = "when it follows, add it again"
	}
	r := refuse("%s takes part without a vote: %s: %s", id, why, then)
	r.Value = addedWithoutVote
	return r, nil
}

// want has a member down for a vote or strikes it off, if that is not so already.
func (n *Node) want(ctx context.Context, id, action string) error {
	if slices.Contains(n.State().Wanted, id) == (action == actionWant) {
		return nil
	}
	c := n.write(kindWant)
	c.Path, c.Action = id, action
	data, err := encodeCommand(c)
	if err != nil {
		return err
	}
	r, err := n.applyHere(ctx, data)
	if err == nil {
		err = r.err()
	}
	return err
}

func (n *Node) votes(id string) bool {
	for _, m := range n.Members() {
		if m.ID == id {
			return m.Voter
		}
	}
	return false
}

// awaitCaughtUp asks a member until it has its own addition, and lacks no more than a message's worth of what came since;
// else it says what is missing.
func (n *Node) awaitCaughtUp(ctx context.Context, m membership) (why string) {
	ctx, cancel := context.WithTimeout(ctx, catchUpBound)
	defer cancel()
	for added := n.raft.CommitIndex(); ctx.Err() == nil; pause(ctx, progressEvery) {
		goal := n.raft.CommitIndex()
		at, _, err := n.progressOf(ctx, n.addressOf(m.ID, m.Addr))
		switch {
		case err != nil:
			why = fmt.Sprintf("it did not answer at %s within %s (%v): is it running, with raft.join: true?", m.Addr, catchUpBound, err)
		case at >= added && at+nearEnough >= goal:
			return ""
		default:
			why = fmt.Sprintf("after %s it has %d of %d log entries", catchUpBound, at, goal)
		}
	}
	return why
}

// progressOf asks the node at addr how far it has applied the log, and whether its disk takes no writes.
func (n *Node) progressOf(ctx context.Context, addr string) (at uint64, failing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, progressWithin)
	defer cancel()
	r, err := n.exchange(ctx, addr, []byte{byte(kindProgress)})
	return r.Index, err == nil && r.Value == cannotWrite, err
}
