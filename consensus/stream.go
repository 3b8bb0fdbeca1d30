package consensus

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
)

// raftStreams is raft's network transport: streams that raftListener admitted, and streams dialled with our
// certificate.
type raftStreams struct {
	peerDialer
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
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return s.dialPeer(ctx, string(addr), alpnRaft)
}

// netAddr is a host and port that is not resolved.
type netAddr string

func (netAddr) Network() string  { return "tcp" }
func (a netAddr) String() string { return string(a) }

// peerDialer opens connections to peers until ctx ends.
type peerDialer struct {
	network   netif.HostNetwork // nil: the system's
	ctx       context.Context
	certs     *identity.Certs
	nodeNames map[string]string // address to node name
	refusals  *refusalLog
	conns     *connSet
	log       hcLogger
}

func (d peerDialer) dialPeer(ctx context.Context, addr, alpn string) (net.Conn, error) {
	open := new(net.Dialer).DialContext
	if d.network != nil {
		open = d.network.DialContext
	}
	raw, err := open(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, d.certs.ClientTLS(alpn, d.checkPeerAt(addr)))
	if err := c.HandshakeContext(ctx); err != nil {
		d.refusals.countRefusal(addr, err)
		_ = raw.Close()
		return nil, err
	}
	d.log.logPeerBack(addr)
	if !d.conns.addConn(c) {
		return nil, ErrStopped
	}
	return &trackedConn{Conn: c, onClose: func() { d.conns.removeConn(c) }}, nil
}

// checkPeerAt admits the global node that is known to be at addr, or any global node if none is known.
func (d peerDialer) checkPeerAt(addr string) func(identity.ID) error {
	return func(id identity.ID) error {
		if err := requireGlobalRole(id); err != nil {
			return err
		}
		if want, ok := d.nodeNames[addr]; ok && want != id.Name {
			return fmt.Errorf("node at %s has a certificate for %s, not %s", addr, id.Name, want)
		}
		return nil
	}
}
