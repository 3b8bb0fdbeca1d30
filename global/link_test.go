package global

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// link is the network between one gateway and one global node: a relay of datagrams that can be cut. Neither end
// notices more than silence.
type link struct {
	near *net.UDPConn // the gateway talks to it
	to   *net.UDPAddr
	cut  atomic.Bool

	mu   sync.Mutex
	ways map[netip.AddrPort]*net.UDPConn
	done sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{to: addr, ways: map[netip.AddrPort]*net.UDPConn{}}
	if l.near, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	l.done.Go(l.forth)
	t.Cleanup(l.close)
	return l
}

func (l *link) addr() string { return l.near.LocalAddr().String() }

func (l *link) forth() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := l.near.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if c := l.way(from); c != nil && !l.cut.Load() {
			c.Write(b[:n])
		}
	}
}

// way is the socket that stands for one of the gateway's.
func (l *link) way(from netip.AddrPort) *net.UDPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.ways[from]
	if c == nil {
		var err error
		if c, err = net.DialUDP("udp", nil, l.to); err != nil {
			return nil
		}
		l.ways[from] = c
		l.done.Go(func() { l.back(c, from) })
	}
	return c
}

func (l *link) back(c *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if !l.cut.Load() {
			l.near.WriteToUDPAddrPort(b[:n], to)
		}
	}
}

func (l *link) close() {
	l.near.Close()
	l.mu.Lock()
	for _, c := range l.ways {
		c.Close()
	}
	l.mu.Unlock()
	l.done.Wait()
}
