package consensus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"time"
)

// proposalServer answers the commands and the questions of other nodes.
type proposalServer struct {
	log      *slog.Logger
	refusals *refusalLog
	running  func() bool
	cluster  interface {
		IsLeader() bool
		Leader() string
		isMember(id string) bool
		appliedIndex() uint64
	}
	applied      *appliedState
	sinceContact func(id string, now time.Time) (d time.Duration, known bool)
	diskFailing  func() bool

	// On the leader.
	applyCommand     func(ctx context.Context, data []byte) (commandResult, error)
	readIndex        func(ctx context.Context) (commandResult, error)
	changeMembership func(ctx context.Context, m membershipChange) (commandResult, error)
}

// applyAsLeader passes a command to the part that makes the change on the leader.
func (p *proposalServer) applyAsLeader(ctx context.Context, data []byte) (commandResult, error) {
	switch {
	case len(data) > 0 && commandKind(data[0]) == kindMembership:
		m, err := decodeMembership(data[1:])
		if err != nil {
			return newRefusal("%v", err), nil
		}
		return p.changeMembership(ctx, m)
	case len(data) == 1 && commandKind(data[0]) == kindReadIndex:
		return p.readIndex(ctx)
	}
	return p.applyCommand(ctx, data)
}

// serveProposal handles one proposal of another node.
func (p *proposalServer) serveProposal(ctx context.Context, c *tls.Conn) {
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	cmd, err := readFrame(c, maxCommand)
	if err != nil {
		p.refusals.countRefusal(c.RemoteAddr().String(), err)
		return
	}
	body, err := json.Marshal(p.answerProposal(ctx, cmd))
	if err != nil {
		p.log.Error("encoding answer failed", "error", err)
		return
	}
	if err := writeFrame(c, body); err != nil && !errors.Is(err, net.ErrClosed) {
		p.log.Warn("answering proposal failed", "peer", c.RemoteAddr().String(), "error", err)
	}
}

func (p *proposalServer) answerProposal(ctx context.Context, cmd []byte) proposalAnswer {
	if len(cmd) == 1 && commandKind(cmd[0]) == kindProgress && p.running() {
		r := commandResult{Code: codeOK, Index: p.cluster.appliedIndex()}
		if p.diskFailing() {
			r.Value = diskCannotWrite
		}
		return proposalAnswer{Result: r}
	}
	if len(cmd) > 1 && len(cmd) <= 1+maxName && commandKind(cmd[0]) == kindAskMember && p.running() {
		return proposalAnswer{Result: p.describeMember(string(cmd[1:]))}
	}
	if !p.cluster.IsLeader() {
		return proposalAnswer{NotLeader: true}
	}
	r, err := p.applyAsLeader(ctx, cmd)
	var unsent errUnsent
	switch {
	case errors.As(err, &unsent):
		return proposalAnswer{NotLeader: true}
	case err != nil:
		return proposalAnswer{Unknown: true}
	}
	return proposalAnswer{Result: r}
}

// describeMember answers another node's question.
func (p *proposalServer) describeMember(id string) commandResult {
	r := commandResult{Code: codeOK}
	if since, known := p.sinceContact(id, time.Now()); known {
		r.Value = 1 + uint64(max(0, since)/time.Millisecond)
	}
	switch {
	case p.cluster.Leader() == "":
	case p.cluster.isMember(id):
		r.Current = answerMember
	default:
		r.Current, r.Message = answerNonMember, p.applied.State().describeRemoval(id)
	}
	return r
}
