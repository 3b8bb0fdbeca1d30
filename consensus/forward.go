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

// forwardToLeader sends a command to the leader to be proposed there.
func (n *Node) forwardToLeader(ctx context.Context, leader string, cmd []byte) (commandResult, error) {
	r, err := n.sendCommand(ctx, leader, cmd)
	if err == nil {
		n.waitForWrite(ctx, r.Index)
	}
	return r, err
}

// sendCommand sends one command to the node at addr and reads the answer.
func (n *Node) sendCommand(ctx context.Context, addr string, cmd []byte) (commandResult, error) {
	c, err := n.dialer.dialPeer(ctx, addr, alpnPropose)
	if err != nil {
		return commandResult{}, errUnsent{fmt.Errorf("reaching %s: %w", addr, err)}
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := writeFrame(c, cmd); err != nil {
		return commandResult{}, fmt.Errorf("sending to %s: %w", addr, err)
	}
	body, err := readFrame(c, maxAnswer)
	if err != nil {
		return commandResult{}, fmt.Errorf("reading the answer of %s: %w", addr, err)
	}
	a, err := decodeAnswer(body)
	switch {
	case err != nil:
		return commandResult{}, err
	case a.NotLeader:
		return commandResult{}, errUnsent{ErrNotLeader}
	case a.Unknown:
		return commandResult{}, ErrUnknownOutcome
	}
	return a.Result, nil
}

// serveProposal handles one proposal of another node.
func (n *Node) serveProposal(ctx context.Context, c *tls.Conn) {
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	cmd, err := readFrame(c, maxCommand)
	if err != nil {
		n.refusals.countRefusal(c.RemoteAddr().String(), err)
		return
	}
	body, err := json.Marshal(n.answerProposal(ctx, cmd))
	if err != nil {
		n.log.Error("encoding answer failed", "error", err)
		return
	}
	if err := writeFrame(c, body); err != nil && !errors.Is(err, net.ErrClosed) {
		n.log.Warn("answering proposal failed", "peer", c.RemoteAddr().String(), "error", err)
	}
}

func (n *Node) answerProposal(ctx context.Context, cmd []byte) proposalAnswer {
	if len(cmd) == 1 && commandKind(cmd[0]) == kindProgress && n.started.Load() {
		r := commandResult{Code: codeOK, Index: n.appliedIndex()}
		if n.DiskFailing() {
			r.Value = diskCannotWrite
		}
		return proposalAnswer{Result: r}
	}
	if len(cmd) > 1 && len(cmd) <= 1+maxName && commandKind(cmd[0]) == kindAskMember && n.started.Load() {
		return proposalAnswer{Result: n.describeMember(string(cmd[1:]))}
	}
	if !n.IsLeader() {
		return proposalAnswer{NotLeader: true}
	}
	r, err := n.applyAsLeader(ctx, cmd)
	var unsent errUnsent
	switch {
	case errors.As(err, &unsent):
		return proposalAnswer{NotLeader: true}
	case err != nil:
		return proposalAnswer{Unknown: true}
	}
	return proposalAnswer{Result: r}
}
