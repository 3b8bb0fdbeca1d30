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
	"github.com/spillway-lb/spillway/internal/network"
)

// streams is raft's view of the network: streams that listener admitted, and streams dialled with our certificate.
type streams struct {
	dialer
	accept    <-chan net.Conn
	advertise string
	stop      chan struct{}
	once      sync.Once
}

var _ raft.StreamLayer = (*streams)(nil)

// Accept is the next stream from a peer.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accept:
		return c, nil
	case <-s.stop:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; the port belongs to listener.
func (s *streams) Close() error {
	s.once.Do(func() { close(s.stop) })
	return nil
}

// Addr is where peers reach this node.
func (s *streams) Addr() net.Addr { return address(s.advertise) }

// Dial opens a stream to a peer and makes sure that it is the one expected there.
func (s *streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return s.dial(ctx, string(addr), alpnRaft)
}

// address is a host and port that is not resolved.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// dialer opens connections to peers until ctx ends.
type dialer struct {
	network network.Network // nil: the system's
	ctx     context.Context
	certs   *identity.Certs
	names   map[string]string // address to node name
	refused *refusals
	conns   *conns
	log     hcLogger
}

func (d dialer) dial(ctx context.Context, addr, alpn string) (net.Conn, error) {
	open := new(net.Dialer).DialContext
	if d.network != nil {
		open = d.network.DialContext
	}
	raw, err := open(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, d.certs.Client(alpn, d.expect(addr)))
	if err := c.HandshakeContext(ctx); err != nil {
		d.refused.add(addr, err)
		_ = raw.Close()
		return nil, err
	}
	d.log.back(addr)
	if !d.conns.add(c) {
		return nil, ErrStopped
	}
	return &tracked{Conn: c, leave: func() { d.conns.remove(c) }}, nil
}

// expect admits the global node that is known to live at addr, or any global node where none is known.
func (d dialer) expect(addr string) func(identity.ID) error {
	return func(id identity.ID) error {
		if err := globalOnly(id); err != nil {
			return err
		}
		if want, ok := d.names[addr]; ok && want != id.Name {
			return fmt.Errorf("node at %s calls itself %s, not %s", addr, id.Name, want)
		}
		return nil
	}
}
