package consensus

import (
	"context"
	"fmt"
	"net"
	"time"
)

// proposalTimeout bounds one proposal from its first byte to its answer.
const proposalTimeout = 10 * time.Second

// errUnsent wraps an error after which nothing can have been written.
type errUnsent struct{ error }

func (e errUnsent) Unwrap() error { return e.error }

// peerClient sends commands and questions to other nodes, each over a connection of its own.
type peerClient struct {
	dialPeer func(ctx context.Context, addr, alpn string) (net.Conn, error)
}

// sendCommand sends one command to the node at addr and reads the answer.
func (p *peerClient) sendCommand(ctx context.Context, addr string, cmd []byte) (commandResult, error) {
	c, err := p.dialPeer(ctx, addr, alpnPropose)
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

// queryProgress asks the node at addr for its applied index, and whether its disk fails to take writes.
func (p *peerClient) queryProgress(ctx context.Context, addr string) (at uint64, failing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	r, err := p.sendCommand(ctx, addr, []byte{byte(kindProgress)})
	return r.Index, err == nil && r.Value == diskCannotWrite, err
}

// memberAnswer is the answer of one node about another.
type memberAnswer struct {
	membership    uint64
	reachable     bool
	sinceContact  time.Duration // since its last contact, if there was any
	removalReason string        // who removed it and why; empty if not removed
}

// askAboutMember asks the node at addr about the membership of another.
func (p *peerClient) askAboutMember(ctx context.Context, addr, id string) (memberAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	r, err := p.sendCommand(ctx, addr, append([]byte{byte(kindAskMember)}, id...))
	if err != nil {
		return memberAnswer{}, err
	}
	if err := r.toError(); err != nil { // the peer runs an earlier release
		return memberAnswer{}, err
	}
	k := memberAnswer{membership: r.Current, reachable: r.Value > 0, removalReason: r.Message}
	if k.reachable {
		k.sinceContact = time.Duration(min(r.Value-1, uint64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
	}
	return k, nil
}
