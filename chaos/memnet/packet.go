package memnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// inbox is how many datagrams wait to be read; what comes on top is lost.
const inbox = 1024

// port is a free one; n.mu is held.
func (n *Net) port() uint16 {
	n.ports++
	if n.ports < 1024 {
		n.ports = 1024
	}
	return n.ports
}

// ListenPacket takes an address for datagrams; port 0 takes a free one, and no host means this one.
func (h *Host) ListenPacket(address string) (net.PacketConn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	if host == "" {
		host = h.addr.String()
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for at.Port() == 0 || port == "0" && n.sockets[at] != nil {
		at = netip.AddrPortFrom(at.Addr(), n.port())
	}
	if n.sockets[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "memory", Addr: net.UDPAddrFromAddrPort(at), Err: syscall.EADDRINUSE}
	}
	if n.sockets == nil {
		n.sockets = map[netip.AddrPort]*socket{}
	}
	s := &socket{net: n, at: at}
	s.news = sync.NewCond(&s.mu)
	n.sockets[at] = s
	return s, nil
}

// datagram is one on its way.
type datagram struct {
	from netip.AddrPort
	body []byte
}

// socket sends and takes datagrams.
type socket struct {
	net *Net
	at  netip.AddrPort

	mu     sync.Mutex
	news   *sync.Cond
	queue  []datagram
	closed bool
	reader limit
}

// ReadFrom waits for the next datagram.
func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, net.ErrClosed
		case s.reader.over:
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue = s.queue[1:]
			return copy(b, d.body), net.UDPAddrFromAddrPort(d.from), nil
		}
		s.news.Wait()
	}
}

// WriteTo sends a datagram and does not say whether it arrives.
func (s *socket) WriteTo(b []byte, addr net.Addr) (int, error) {
	to := addr.(*net.UDPAddr).AddrPort()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	d := datagram{s.at, append([]byte(nil), b...)}
	if s.net.Delay == nil {
		s.net.deliver(d, to)
	} else {
		time.AfterFunc(s.net.Delay(s.at.Addr(), to.Addr()), func() { s.net.deliver(d, to) })
	}
	return len(b), nil
}

// deliver hands a datagram over, unless one of the two hosts is off the network by now.
func (n *Net) deliver(d datagram, to netip.AddrPort) {
	n.mu.Lock()
	s := n.sockets[to]
	if n.severed(d.from.Addr(), to.Addr()) {
		s = nil
	}
	n.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.queue) < inbox {
		s.queue = append(s.queue, d)
		s.news.Signal()
	}
}

// Close gives the address back.
func (s *socket) Close() error {
	s.net.mu.Lock()
	if s.net.sockets[s.at] == s {
		delete(s.net.sockets, s.at)
	}
	s.net.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.queue = true, nil
	s.reader.stop()
	s.news.Broadcast()
	return nil
}

// LocalAddr is the address listened on.
func (s *socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.at) }

// SetDeadline is SetReadDeadline: sending never waits.
func (s *socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetWriteDeadline changes nothing: sending never waits.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline ends the wait for the next datagram.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader.set(t, &s.mu, s.news)
	return nil
}
