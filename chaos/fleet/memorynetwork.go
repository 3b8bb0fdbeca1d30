package fleet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// acceptBacklog is how many connections may wait to be accepted.
const acceptBacklog = 1024

// MemoryNetwork is one network. The zero value is ready.
type MemoryNetwork struct {
	// DatagramDelay is the transit time of a datagram; nil: none. It must be set before the first one is sent.
	DatagramDelay func(from, to netip.Addr) time.Duration
	// StreamDelay is the transit time of data on connections, and half the time to open one; nil: none.
	StreamDelay func(from, to netip.Addr) time.Duration

	mu        sync.Mutex
	listeners map[string]*memListener
	sockets   map[netip.AddrPort]*packetSocket
	conns     map[*memConn]struct{}
	cutPairs  map[hostPair]bool
	lastPort  uint16 // last one assigned to a client
}

// Listen listens on an address, host:port. An address in use is an error.
func (n *MemoryNetwork) Listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*memListener{}
	}
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "memory", Addr: net.TCPAddrFromAddrPort(at), Err: syscall.EADDRINUSE}
	}
	l := &memListener{network: n, addr: at, conns: make(chan net.Conn, acceptBacklog), done: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// DialContext connects from 127.0.0.1 to an address with a listener.
func (n *MemoryNetwork) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return n.dialFrom(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), address)
}

func (n *MemoryNetwork) dialFrom(ctx context.Context, host netip.Addr, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialling in memory: %w", err)
	}
	n.mu.Lock()
	l := n.listeners[address]
	if n.isCut(host, at.Addr()) {
		l = nil
	}
	from := netip.AddrPortFrom(host, n.nextPort())
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	if err := n.waitDelay(ctx, 2*n.streamDelay(host, at.Addr())); err != nil {
		return nil, err
	}
	near, far := n.newConnPair(from, l.addr)
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

// streamDelay is the transit time of stream data between two hosts.
func (n *MemoryNetwork) streamDelay(from, to netip.Addr) time.Duration {
	if n.StreamDelay == nil {
		return 0
	}
	return n.StreamDelay(from, to)
}

// waitDelay waits for a delay.
func (n *MemoryNetwork) waitDelay(ctx context.Context, d time.Duration) error {
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

type memListener struct {
	network *MemoryNetwork
	addr    netip.AddrPort
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

// Accept returns the next connection.
func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close releases the address and closes connections that were not accepted.
func (l *memListener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr.String())
		l.network.mu.Unlock()
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

// Addr is the address of the listener.
func (l *memListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
