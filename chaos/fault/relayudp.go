package fault

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounds of a link of datagrams.
const (
	// maxSessions bounds the dialers' sockets of one link; the one that was idle longest is dropped.
	maxSessions = 512
	sessionIdle = 2 * time.Minute
	// maxUnderWay bounds the datagrams of one link that are under way; further ones are lost.
	maxUnderWay = 1 << 14
	maxDatagram = 64 << 10
)

// datagramLink carries a link of datagrams. It has a socket toward the listener for each of the dialer's, so that answers
// find their way back.
type datagramLink struct {
	link    *relayLink
	socket  *net.UDPConn
	queue   *sendQueue
	readers sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[netip.AddrPort]*datagramSession
}

// datagramSession is one socket of the dialer.
type datagramSession struct {
	far  *net.UDPConn
	used time.Time
}

func openDatagramLink(l *relayLink) (*datagramLink, error) {
	s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(l.Listen))
	if err != nil {
		return nil, fmt.Errorf("relay cannot listen for %s: %w", l.Name, err)
	}
	s.SetReadBuffer(1 << 20)
	return &datagramLink{link: l, socket: s, queue: newSendQueue(l.lateness), sessions: map[netip.AddrPort]*datagramSession{}}, nil
}

func (d *datagramLink) start() {
	go d.queue.run()
	d.readers.Go(d.readNear)
}

func (d *datagramLink) close() {
	d.mu.Lock()
	d.closed = true
	d.socket.Close()
	for _, s := range d.sessions {
		s.far.Close()
	}
	d.mu.Unlock()
	d.readers.Wait()
	d.queue.close()
}

func (d *datagramLink) readNear() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := d.socket.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s := d.findSession(from)
		if s == nil {
			continue
		}
		d.queue.schedule(d.link.forward, buf[:n], func(b []byte) { s.far.Write(b) })
	}
}

// findSession returns the session of a dialer's socket, and opens one for a new socket.
func (d *datagramLink) findSession(from netip.AddrPort) *datagramSession {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[from]; s != nil {
		s.used = now
		return s
	}
	if d.closed {
		return nil
	}
	d.dropIdle(now)
	far, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(d.link.Forward))
	if err != nil {
		return nil
	}
	s := &datagramSession{far: far, used: now}
	d.sessions[from] = s
	d.readers.Go(func() { d.readFar(s, from) })
	return s
}

// dropIdle closes idle sessions, and the one that was idle longest if there are too many. The lock must be held.
func (d *datagramLink) dropIdle(now time.Time) {
	var oldest netip.AddrPort
	for from, s := range d.sessions {
		if now.Sub(s.used) > sessionIdle {
			s.far.Close()
			delete(d.sessions, from)
		} else if o := d.sessions[oldest]; o == nil || s.used.Before(o.used) {
			oldest = from
		}
	}
	if len(d.sessions) >= maxSessions {
		d.sessions[oldest].far.Close()
		delete(d.sessions, oldest)
	}
}

func (d *datagramLink) readFar(s *datagramSession, to netip.AddrPort) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := s.far.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the listener's port is closed: datagrams are lost
			continue
		}
		d.mu.Lock()
		s.used = time.Now()
		d.mu.Unlock()
		d.queue.schedule(d.link.back, buf[:n], func(b []byte) { d.socket.WriteToUDPAddrPort(b, to) })
	}
}

// datagram is one that is under way.
type datagram struct {
	due   time.Time
	order uint64
	data  []byte
	send  func([]byte)
}

// datagramHeap orders datagrams by due time, and equal ones as they came.
type datagramHeap []datagram

func (h datagramHeap) Len() int { return len(h) }
func (h datagramHeap) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].order < h[j].order
}
func (h datagramHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *datagramHeap) Push(x any)   { *h = append(*h, x.(datagram)) }
func (h *datagramHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = datagram{}
	*h = old[:len(old)-1]
	return x
}
