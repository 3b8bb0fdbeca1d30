package fleet

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// maxQueuedDatagrams is how many datagrams may wait to be read; further ones are lost.
const maxQueuedDatagrams = 1024

// nextPort returns a free port; n.mu must be held.
func (n *MemoryNetwork) nextPort() uint16 {
	n.lastPort++
	if n.lastPort < 1024 {
		n.lastPort = 1024
	}
	return n.lastPort
}

// datagram is a datagram in transit.
type datagram struct {
	from netip.AddrPort
	body []byte
}

// packetSocket sends and receives datagrams.
type packetSocket struct {
	network *MemoryNetwork
	addr    netip.AddrPort

	mu           sync.Mutex
	changed      *sync.Cond
	queue        []datagram
	closed       bool
	readDeadline deadlineTimer
}

// ReadFrom waits for the next datagram.
func (s *packetSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, net.ErrClosed
		case s.readDeadline.expired:
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue = s.queue[1:]
			return copy(b, d.body), net.UDPAddrFromAddrPort(d.from), nil
		}
		s.changed.Wait()
	}
}

// WriteTo sends a datagram. It reports no error if the datagram is lost.
func (s *packetSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	to := addr.(*net.UDPAddr).AddrPort()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	d := datagram{s.addr, append([]byte(nil), b...)}
	if s.network.DatagramDelay == nil {
		s.network.deliverDatagram(d, to)
	} else {
		time.AfterFunc(s.network.DatagramDelay(s.addr.Addr(), to.Addr()), func() { s.network.deliverDatagram(d, to) })
	}
	return len(b), nil
}

// deliverDatagram delivers a datagram unless one of the two hosts is disconnected at that time.
func (n *MemoryNetwork) deliverDatagram(d datagram, to netip.AddrPort) {
	n.mu.Lock()
	s := n.sockets[to]
	if n.isCut(d.from.Addr(), to.Addr()) {
		s = nil
	}
	n.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.queue) < maxQueuedDatagrams {
		s.queue = append(s.queue, d)
		s.changed.Signal()
	}
}

// Close releases the address.
func (s *packetSocket) Close() error {
	s.network.mu.Lock()
	if s.network.sockets[s.addr] == s {
		delete(s.network.sockets, s.addr)
	}
	s.network.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.queue = true, nil
	s.readDeadline.stopTimer()
	s.changed.Broadcast()
	return nil
}

// LocalAddr is the address of the socket.
func (s *packetSocket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.addr) }

// SetDeadline is SetReadDeadline, because sending never blocks.
func (s *packetSocket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetWriteDeadline has no effect, because sending never blocks.
func (s *packetSocket) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline sets the deadline of ReadFrom.
func (s *packetSocket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readDeadline.setDeadline(t, &s.mu, s.changed)
	return nil
}
