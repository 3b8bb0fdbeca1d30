package memnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// backlog is how many connections wait to be accepted.
const backlog = 1024

// Net is one network. The zero value is ready.
type Net struct {
	// Delay is how long a datagram is on its way; nil: no time. It is set before the first one is sent.
	Delay func(from, to netip.Addr) time.Duration
	// StreamDelay is the same for what is written to connections, and half of what it takes to open one; nil: no time.
	StreamDelay func(from, to netip.Addr) time.Duration

	mu        sync.Mutex
	listeners map[string]*listener
	sockets   map[netip.AddrPort]*socket
	open      map[*conn]struct{}
	cut       map[link]bool
	ports     uint16 // last one given to a client
}

// Listen takes an address, host:port. It is an error when somebody has it.
func (n *Net) Listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
	}
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "memory", Addr: net.TCPAddrFromAddrPort(at), Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, at: at, conns: make(chan net.Conn, backlog), done: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// DialContext connects from 127.0.0.1 to an address that somebody listens on.
func (n *Net) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return n.dial(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), address)
}

func (n *Net) dial(ctx context.Context, host netip.Addr, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialling in memory: %w", err)
	}
	n.mu.Lock()
	l := n.listeners[address]
	if n.severed(host, at.Addr()) {
		l = nil
	}
	from := netip.AddrPortFrom(host, n.port())
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	if err := n.travel(ctx, 2*n.late(host, at.Addr())); err != nil {
		return nil, err
	}
	near, far := n.pair(from, l.at)
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		_, _ = near.Close(), far.Close()
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		_, _ = near.Close(), far.Close()
		return nil, ctx.Err()
	}
}

// late is how long a stream's bytes take from one host to another.
func (n *Net) late(from, to netip.Addr) time.Duration {
	if n.StreamDelay == nil {
		return 0
	}
	return n.StreamDelay(from, to)
}

// travel waits.
func (n *Net) travel(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type listener struct {
	net   *Net
	at    netip.AddrPort
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Accept is the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close gives the address back and ends connections that were not accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.at.String())
		l.net.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr is the address listened on.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }
