package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	minLeaderWait        = 7 * time.Second    // how long a write waits for a leader, at least
	leaderWaitHeartbeats = 7                  // in heartbeats: an election takes two, or five when a first one fails
	retryJitter          = minLeaderWait / 16 // between tries, at most
)

// proposer brings writes to the leader, which may be this node.
type proposer struct {
	cluster interface {
		IsLeader() bool
		otherLeaderAddr() string
	}
	running   func() bool
	stopping  context.Context // ends when the node stops
	applied   *appliedState
	applyHere func(ctx context.Context, data []byte) (commandResult, error) // on the leader
	send      func(ctx context.Context, addr string, data []byte) (commandResult, error)
	report    func(outcome string) // may be nil
	heartbeat time.Duration
}

// proposeCommand writes a command through the leader, and tries again while there is none. A command with unknown
// outcome is sent again only if it has an idempotency key, under which the state keeps the outcome.
func (p *proposer) proposeCommand(ctx context.Context, c command) (commandResult, error) {
	data, err := encodeCommand(c)
	if err != nil {
		return commandResult{}, err
	}
	r, err := p.proposeWithRetry(ctx, data, c.ID != "", p.leaderWait())
	if err == nil {
		err = r.toError()
	}
	p.reportOutcome(err)
	return r, err
}

// leaderWait is how long a write waits for a leader.
func (p *proposer) leaderWait() time.Duration {
	return max(minLeaderWait, leaderWaitHeartbeats*p.heartbeat)
}

// reportOutcome reports the outcome of a write.
func (p *proposer) reportOutcome(err error) {
	if p.report != nil {
		p.report(classifyOutcome(err))
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
func (p *proposer) proposeWithRetry(ctx context.Context, data []byte, repeatable bool, hold time.Duration) (commandResult, error) {
	until := time.Now().Add(hold)
	maybe := false
	for {
		r, err := p.proposeOnce(ctx, data)
		if err == nil {
			return r, nil
		}
		var unsent errUnsent
		maybe = maybe || !errors.As(err, &unsent)
		if maybe && !repeatable || ctx.Err() != nil || errors.Is(err, ErrStopped) || time.Now().After(until) {
			return commandResult{}, finalError(ctx, maybe, err)
		}
		sleepFor(ctx, retryJitter/8+rand.N(retryJitter))
	}
}

// proposeOnce makes one try, here or at the leader.
func (p *proposer) proposeOnce(ctx context.Context, data []byte) (commandResult, error) {
	if !p.running() || p.stopping.Err() != nil {
		return commandResult{}, errUnsent{ErrStopped}
	}
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(p.stopping, cancel)()
	if p.cluster.IsLeader() {
		return p.applyHere(ctx, data)
	}
	addr := p.cluster.otherLeaderAddr()
	if addr == "" {
		return commandResult{}, errUnsent{ErrNoLeader}
	}
	r, err := p.send(ctx, addr, data)
	if err == nil {
		p.applied.waitForWrite(ctx, p.stopping.Done(), r.Index)
	}
	return r, err
}

// finalError is the error of the last try for the caller; maybe is set if a try may have been written.
func finalError(ctx context.Context, maybe bool, err error) error {
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
