package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
)

const (
	minLeaderWait        = 7 * time.Second    // how long a write waits for a leader, at least
	leaderWaitHeartbeats = 7                  // in heartbeats: an election takes two, or five when a first one fails
	retryJitter          = minLeaderWait / 16 // between tries, at most
	enqueueTimeout       = 2 * time.Second
)

// proposeCommand writes a command through the leader, and tries again while there is none. A command with unknown
// outcome is sent again only if it has an idempotency key, under which the state keeps the outcome.
func (n *Node) proposeCommand(ctx context.Context, c command) (commandResult, error) {
	data, err := encodeCommand(c)
	if err != nil {
		return commandResult{}, err
	}
	r, err := n.proposeWithRetry(ctx, data, c.ID != "", n.leaderWait())
	if err == nil {
		err = r.toError()
	}
	n.reportOutcome(err)
	return r, err
}

// leaderWait is how long a write waits for a leader.
func (n *Node) leaderWait() time.Duration {
	return max(minLeaderWait, leaderWaitHeartbeats*n.cfg.Heartbeat)
}

// reportOutcome calls OnProposal with the outcome of a write.
func (n *Node) reportOutcome(err error) {
	if n.cfg.OnProposal != nil {
		n.cfg.OnProposal(classifyOutcome(err))
	}
}

func classifyOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, new(ErrConflict)):
		return "conflict"
	case errors.As(err, new(ErrRefused)):
		return "refused"
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, ErrStopped):
		return "stopped"
	}
	return "no_leader"
}

// proposeWithRetry tries until a leader has accepted data, and starts no try after hold. Data that is not repeatable
// is sent again only if it cannot have arrived.
func (n *Node) proposeWithRetry(ctx context.Context, data []byte, repeatable bool, hold time.Duration) (commandResult, error) {
	until := time.Now().Add(hold)
	maybe := false
	for {
		r, err := n.proposeOnce(ctx, data)
		if err == nil {
			return r, nil
		}
		var unsent errUnsent
		maybe = maybe || !errors.As(err, &unsent)
		if maybe && !repeatable || ctx.Err() != nil || errors.Is(err, ErrStopped) || time.Now().After(until) {
			return commandResult{}, n.finalError(ctx, maybe, err)
		}
		sleepFor(ctx, retryJitter/8+rand.N(retryJitter))
	}
}

// proposeOnce makes one try, here or at the leader.
func (n *Node) proposeOnce(ctx context.Context, data []byte) (commandResult, error) {
	if !n.started.Load() || n.ctx.Err() != nil {
		return commandResult{}, errUnsent{ErrStopped}
	}
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if n.IsLeader() {
		return n.applyAsLeader(ctx, data)
	}
	addr, id := n.raft.LeaderWithID()
	if addr == "" || string(id) == n.id {
		return commandResult{}, errUnsent{ErrNoLeader}
	}
	return n.forwardToLeader(ctx, n.resolveNodeAddr(string(id), string(addr)), data)
}

func (n *Node) finalError(ctx context.Context, maybe bool, err error) error {
	switch {
	case errors.Is(err, ErrStopped) && !maybe:
		return ErrStopped
	case maybe && !errors.Is(err, ErrUnknownOutcome):
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, err)
	case maybe:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", ErrNoLeader, ctx.Err())
	case errors.Is(err, ErrNoLeader):
		return err
	}
	return fmt.Errorf("%w (%w)", ErrNoLeader, err)
}

// applyAsLeader proposes as the leader. The checks run first, so that a command that would be refused stays out of
// the log.
func (n *Node) applyAsLeader(ctx context.Context, data []byte) (commandResult, error) {
	if len(data) > 0 && commandKind(data[0]) == kindMembership {
		m, err := decodeMembership(data[1:])
		if err != nil {
			return newRefusal("%v", err), nil
		}
		return n.changeMembershipAsLeader(ctx, m)
	}
	if len(data) == 1 && commandKind(data[0]) == kindReadIndex {
		return n.readIndexAsLeader(ctx)
	}
	n.restoreMu.RLock()
	defer n.restoreMu.RUnlock()
	data, r, ok := n.precheckCommand(data)
	if !ok {
		return r, nil
	}
	begun := time.Now()
	f := n.raft.Apply(data, enqueueTimeout)
	if err := n.awaitFuture(ctx, f); err != nil {
		return commandResult{}, err
	}
	if n.cfg.OnCommit != nil {
		n.cfg.OnCommit(time.Since(begun))
	}
	if r, ok = f.Response().(commandResult); !ok {
		return commandResult{}, fmt.Errorf("applying: %w", ErrUnknownOutcome)
	}
	select {
	case n.committed <- struct{}{}:
	default: // an announcement is due already, and will cover this one
	}
	return r, nil
}

// precheckCommand keeps malformed commands out of the log, and specs and plans that applyEntry would refuse. Accepted
// ones are marked as checked. Everything else, conflicts included, is left to applyEntry, because this node may lag
// behind the log.
func (n *Node) precheckCommand(data []byte) ([]byte, commandResult, bool) {
	c, err := decodeCommand(data)
	if err != nil {
		return nil, newRefusal("%v", err), false
	}
	if err := checkCommandSize(data); err != nil {
		return nil, newRefusal("%v", err), false
	}
	if c.Kind != kindPutSpec && c.Kind != kindPutPlan && c.Kind != kindStartRollout && c.Kind != kindPutDrain {
		return data, commandResult{}, true
	}
	if c.Kind == kindPutDrain {
		r := n.precheckDrain(c)
		return data, r, r.Code != codeRefused
	}
	if c.PreChecked { // not set by this leader: a proposer must not set it
		c.PreChecked = false
		if data, err = encodeCommand(c); err != nil {
			return nil, newRefusal("%v", err), false
		}
	}
	s := *n.State()
	if _, done := s.findOutcome(c.ID); done { // sent again because the answer was lost: it would conflict with itself, and the log has its outcome
		return data, commandResult{}, true
	}
	s.Term = n.raft.CurrentTerm()
	r := s.applyCommand(c, n.fsm.checks)
	if r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return nil, refuseTooLarge(&s), false
	}
	if r.Code == codeOK {
		data, c.PreChecked = markChecked(data), true
		n.fsm.commandCache.addCommand(data, c)
	}
	return data, r, r.Code != codeRefused
}

// checkCommandSize refuses a command that is too long once it is marked: nodes of earlier releases have no
// checkedMarkSlack and would refuse what this one applies.
func checkCommandSize(data []byte) error {
	if len(data)+len(checkedMark) > maxCommand {
		return fmt.Errorf("command is longer than %d bytes", maxCommand-len(checkedMark))
	}
	return nil
}

// precheckDrain refuses a drain that would make the state larger than a snapshot may be.
func (n *Node) precheckDrain(c command) commandResult {
	s := *n.State()
	if r := s.putDrain(c); r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return refuseTooLarge(&s)
	}
	return commandResult{Code: codeOK}
}

func refuseTooLarge(s *State) commandResult {
	return newRefusal("the replicated state would have %d bytes, more than the limit of %d: shorten the spec, or end drains and shorten their reasons", stateSize(s), maxSnapshot)
}

// checkedMark ends a command that the leader has checked.
const checkedMark = `,"judged":true}`

// markChecked adds the mark to an encoded command with a body, and leaves a field of that name from a later release
// unchanged.
func markChecked(data []byte) []byte {
	end := bytes.LastIndexByte(data, '}')
	return append(bytes.Clone(data[:end]), checkedMark...)
}

// awaitFuture waits for raft, at most until ctx ends. Raft itself ends every wait when it loses the lead or stops.
func (n *Node) awaitFuture(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }() // ends with raft at the latest
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

// toError returns the result as an error of the API.
func (r commandResult) toError() error {
	switch r.Code {
	case codeOK:
		return nil
	case codeConflict:
		return ErrConflict{Current: r.Current}
	}
	return ErrRefused{Reason: r.Message}
}
