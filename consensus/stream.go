package consensus

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftStreams is raft's network transport: streams that raftListener admitted, and streams dialled with our
// certificate.
type raftStreams struct {
	dialer    *peerDialer
	accepted  <-chan net.Conn
	advertise string
	closed    chan struct{}
	once      sync.Once
}

var _ raft.StreamLayer = (*raftStreams)(nil)

// Accept returns the next stream from a peer.
func (s *raftStreams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; the port belongs to raftListener.
func (s *raftStreams) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is the address at which peers reach this node.
func (s *raftStreams) Addr() net.Addr { return netAddr(s.advertise) }

// Dial opens a stream to a peer and verifies that it is the expected node.
func (s *raftStreams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.dialer.ctx, timeout)
	defer cancel()
	return s.dialer.dialPeer(ctx, string(addr), alpnRaft)
}

// netAddr is a host and port that is not resolved.
type netAddr string

func (netAddr) Network() string  { return "tcp" }
func (a netAddr) String() string { return string(a) }
