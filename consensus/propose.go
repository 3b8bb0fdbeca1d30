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
	holdTimeout    = 7 * time.Second  // how long a write waits for a leader, at least
	holdBeats      = 7                // in heartbeats: an election takes two, or five when a first one fails
	holdJitter     = holdTimeout / 16 // between tries, at most
	enqueueTimeout = 2 * time.Second
)

// propose writes a command through whoever leads, and tries again while nobody does. A command whose fate is unknown is
// sent again only if it has an idempotency key, under which the state remembers what became of it.
func (n *Node) propose(ctx context.Context, c command) (result, error) {
	data, err := encodeCommand(c)
	if err != nil {
		return result{}, err
	}
	r, err := n.persist(ctx, data, c.ID != "", n.hold())
	if err == nil {
		err = r.err()
	}
	n.outcome(err)
	return r, err
}

// hold is how long a write waits for a leader.
func (n *Node) hold() time.Duration { return max(holdTimeout, holdBeats*n.cfg.Heartbeat) }

// outcome tells what became of a write.
func (n *Node) outcome(err error) {
	if n.cfg.OnProposal != nil {
		n.cfg.OnProposal(outcomeOf(err))
	}
}

func outcomeOf(err error) string {
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

// persist tries until a leader has taken data, and begins no try after hold. What is not repeatable is sent again only if
// it cannot have arrived.
func (n *Node) persist(ctx context.Context, data []byte, repeatable bool, hold time.Duration) (result, error) {
	until := time.Now().Add(hold)
	maybe := false
	for {
		r, err := n.try(ctx, data)
		if err == nil {
			return r, nil
		}
		var unsent errUnsent
		maybe = maybe || !errors.As(err, &unsent)
		if maybe && !repeatable || ctx.Err() != nil || errors.Is(err, ErrStopped) || time.Now().After(until) {
			return result{}, n.giveUp(ctx, maybe, err)
		}
		pause(ctx, holdJitter/8+rand.N(holdJitter))
	}
}

// try makes one attempt, here or at the leader.
func (n *Node) try(ctx context.Context, data []byte) (result, error) {
	if !n.started.Load() || n.ctx.Err() != nil {
		return result{}, errUnsent{ErrStopped}
	}
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if n.IsLeader() {
		return n.applyHere(ctx, data)
	}
	addr, id := n.raft.LeaderWithID()
	if addr == "" || string(id) == n.id {
		return result{}, errUnsent{ErrNoLeader}
	}
	return n.forward(ctx, n.addressOf(string(id), string(addr)), data)
}

func (n *Node) giveUp(ctx context.Context, maybe bool, err error) error {
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

// applyHere proposes as the leader. The checks run first, so that what would be refused is kept out of the log.
func (n *Node) applyHere(ctx context.Context, data []byte) (result, error) {
	if len(data) > 0 && kind(data[0]) == kindMembership {
		m, err := decodeMembership(data[1:])
		if err != nil {
			return refuse("%v", err), nil
		}
		return n.reformHere(ctx, m)
	}
	if len(data) == 1 && kind(data[0]) == kindReadIndex {
		return n.readHere(ctx)
	}
	n.restoring.RLock()
	defer n.restoring.RUnlock()
	data, r, ok := n.foresee(data)
	if !ok {
		return r, nil
	}
	begun := time.Now()
	f := n.raft.Apply(data, enqueueTimeout)
	if err := n.await(ctx, f); err != nil {
		return result{}, err
	}
	if n.cfg.OnCommit != nil {
		n.cfg.OnCommit(time.Since(begun))
	}
	if r, ok = f.Response().(result); !ok {
		return result{}, fmt.Errorf("applying: %w", ErrUnknownOutcome)
	}
	select {
	case n.written <- struct{}{}:
	default: // an announcement is due already, and will cover this one
	}
	return r, nil
}

// foresee keeps out of the log what cannot be read, and specs and plans that apply would refuse; those that it would take
// are marked as judged. Anything else, a conflict too, is left to the log to decide, for this node may be behind it.
func (n *Node) foresee(data []byte) ([]byte, result, bool) {
	c, err := decodeCommand(data)
	if err != nil {
		return nil, refuse("%v", err), false
	}
	if err := fits(data); err != nil {
		return nil, refuse("%v", err), false
	}
	if c.Kind != kindPutSpec && c.Kind != kindPutPlan && c.Kind != kindStage && c.Kind != kindPutDrain {
		return data, result{}, true
	}
	if c.Kind == kindPutDrain {
		r := n.foreseeSize(c)
		return data, r, r.Code != codeRefused
	}
	if c.Judged { // not by us: a proposer has no say in this
		c.Judged = false
		if data, err = encodeCommand(c); err != nil {
			return nil, refuse("%v", err), false
		}
	}
	s := *n.State()
	if _, done := s.outcome(c.ID); done { // sent again, as the answer was lost: it stands in its own way, and the log knows it
		return data, result{}, true
	}
	s.Term = n.raft.CurrentTerm()
	r := s.run(c, n.fsm.checks)
	if r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return nil, tooLarge(&s), false
	}
	if r.Code == codeOK {
		data, c.Judged = markJudged(data), true
		n.fsm.foreseen.note(data, c)
	}
	return data, r, r.Code != codeRefused
}

// fits refuses a command that is too long once it is marked: nodes of earlier releases, which know no slack, would refuse
// what this one applies.
func fits(data []byte) error {
	if len(data)+len(judgedMark) > maxCommand {
		return fmt.Errorf("command is longer than %d bytes", maxCommand-len(judgedMark))
	}
	return nil
}

// foreseeSize refuses a drain that would make the state larger than a snapshot may be.
func (n *Node) foreseeSize(c command) result {
	s := *n.State()
	if r := s.putDrain(c); r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return tooLarge(&s)
	}
	return result{Code: codeOK}
}

func tooLarge(s *State) result {
	return refuse("the agreed state would come to %d bytes, more than the %d that a node can read back: shorten the spec, or end drains and shorten their reasons", stateSize(s), maxSnapshot)
}

// judgedMark stands at the end of a command that the leader has checked.
const judgedMark = `,"judged":true}`

// markJudged adds the mark to an encoded command with a body, and leaves alone what a later release may have put there.
func markJudged(data []byte) []byte {
	end := bytes.LastIndexByte(data, '}')
	return append(bytes.Clone(data[:end]), judgedMark...)
}

// await waits for raft, and no longer than ctx. Raft itself ends every wait when it loses the lead or stops.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }() // ends with raft at the latest
	select {
	case err := <-done:
		return sent(err)
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, ctx.Err())
	}
}

// sent sorts raft's errors by whether the entry may be in the log.
func sent(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errUnsent{fmt.Errorf("%w (%w)", ErrNotLeader, err)}
	}
	return fmt.Errorf("%w (%w)", ErrUnknownOutcome, err)
}

// err is the result as a caller of the API meets it.
func (r result) err() error {
	switch r.Code {
	case codeOK:
		return nil
	case codeConflict:
		return ErrConflict{Current: r.Current}
	}
	return ErrRefused{Reason: r.Message}
}
