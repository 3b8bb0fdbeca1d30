package consensus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A proposal is one frame in each direction: four bytes of length, one byte of version, then a command or an answer.
const (
	frameVersion = 1
	maxAnswer    = 64 << 10
)

// proposalAnswer is a result, or the reason why there is none.
type proposalAnswer struct {
	Result    commandResult `json:"result"`
	NotLeader bool          `json:"not_leader,omitempty"` // nothing was done
	Unknown   bool          `json:"unknown,omitempty"`    // the write may have been done
}

func writeFrame(w io.Writer, body []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5+len(body)), uint32(1+len(body)))
	_, err := w.Write(append(append(b, frameVersion), body...))
	return err
}

// readFrame reads one frame of at most limit bytes of content.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	switch {
	case head[4] != frameVersion:
		return nil, fmt.Errorf("frame of version %d, want %d", head[4], frameVersion)
	case n < 1 || n-1 > uint32(limit):
		return nil, fmt.Errorf("frame of %d bytes, want at most %d", n, limit)
	}
	body := make([]byte, n-1)
	_, err := io.ReadFull(r, body)
	return body, err
}

func decodeAnswer(b []byte) (proposalAnswer, error) {
	var a proposalAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("decoding answer: %w", err)
	}
	switch {
	case a.NotLeader && a.Unknown:
		return a, errors.New("answer is inconsistent")
	case a.NotLeader || a.Unknown:
		return a, nil
	case a.Result.Code != codeOK && a.Result.Code != codeConflict && a.Result.Code != codeRefused:
		return a, fmt.Errorf("answer with unknown code %q", a.Result.Code)
	}
	return a, nil
}
