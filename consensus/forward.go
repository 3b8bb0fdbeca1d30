package consensus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// proposalTimeout bounds one proposal from its first byte to its answer.
const proposalTimeout = 10 * time.Second

// errUnsent wraps an error after which nothing can have been written.
type errUnsent struct{ error }

func (e errUnsent) Unwrap() error { return e.error }

// forward has the leader propose a command.
func (n *Node) forward(ctx context.Context, leader string, cmd []byte) (result, error) {
	r, err := n.exchange(ctx, leader, cmd)
	if err == nil {
		n.catchUp(ctx, r.Index)
	}
	return r, err
}

// exchange sends one command to the node at addr and reads the answer.
func (n *Node) exchange(ctx context.Context, addr string, cmd []byte) (result, error) {
	c, err := n.dialer.dial(ctx, addr, alpnPropose)
	if err != nil {
		return result{}, errUnsent{fmt.Errorf("reaching %s: %w", addr, err)}
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := writeFrame(c, cmd); err != nil {
		return result{}, fmt.Errorf("sending to %s: %w", addr, err)
	}
	body, err := readFrame(c, maxAnswer)
	if err != nil {
		return result{}, fmt.Errorf("reading the answer of %s: %w", addr, err)
	}
	a, err := decodeAnswer(body)
	switch {
	case err != nil:
		return result{}, err
	case a.NotLeader:
		return result{}, errUnsent{ErrNotLeader}
	case a.Unknown:
		return result{}, ErrUnknownOutcome
	}
	return a.Result, nil
}

// serveProposal answers one proposal of another node.
func (n *Node) serveProposal(ctx context.Context, c *tls.Conn) {
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	cmd, err := readFrame(c, maxCommand)
	if err != nil {
		n.refused.add(c.RemoteAddr().String(), err)
		return
	}
	body, err := json.Marshal(n.answer(ctx, cmd))
	if err != nil {
		n.log.Error("encoding answer failed", "error", err)
		return
	}
	if err := writeFrame(c, body); err != nil && !errors.Is(err, net.ErrClosed) {
		n.log.Warn("answering proposal failed", "peer", c.RemoteAddr().String(), "error", err)
	}
}

func (n *Node) answer(ctx context.Context, cmd []byte) answer {
	if len(cmd) == 1 && kind(cmd[0]) == kindProgress && n.started.Load() {
		r := result{Code: codeOK, Index: n.applied()}
		if n.DiskFailing() {
			r.Value = cannotWrite
		}
		return answer{Result: r}
	}
	if len(cmd) > 1 && len(cmd) <= 1+maxName && kind(cmd[0]) == kindStanding && n.started.Load() {
		return answer{Result: n.tellOf(string(cmd[1:]))}
	}
	if !n.IsLeader() {
		return answer{NotLeader: true}
	}
	r, err := n.applyHere(ctx, cmd)
	var unsent errUnsent
	switch {
	case errors.As(err, &unsent):
		return answer{NotLeader: true}
	case err != nil:
		return answer{Unknown: true}
	}
	return answer{Result: r}
}
