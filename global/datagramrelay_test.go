package global

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// datagramRelay is the network between one gateway and one global node: a relay of datagrams that can be cut. Both
// ends notice only silence.
type datagramRelay struct {
	gatewayConn *net.UDPConn // the gateway's end
	nodeAddr    *net.UDPAddr
	blocked     atomic.Bool

	mu      sync.Mutex
	sockets map[netip.AddrPort]*net.UDPConn
	done    sync.WaitGroup
}

func newDatagramRelay(t *testing.T, to string) *datagramRelay {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	l := &datagramRelay{nodeAddr: addr, sockets: map[netip.AddrPort]*net.UDPConn{}}
	if l.gatewayConn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	l.done.Go(l.relayToNode)
	t.Cleanup(l.closeSockets)
	return l
}

func (l *datagramRelay) listenAddr() string { return l.gatewayConn.LocalAddr().String() }

func (l *datagramRelay) relayToNode() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := l.gatewayConn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if c := l.socketFor(from); c != nil && !l.blocked.Load() {
			c.Write(b[:n])
		}
	}
}

// socketFor returns the socket that represents one of the gateway's.
func (l *datagramRelay) socketFor(from netip.AddrPort) *net.UDPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.sockets[from]
	if c == nil {
		var err error
		if c, err = net.DialUDP("udp", nil, l.nodeAddr); err != nil {
			return nil
		}
		l.sockets[from] = c
		l.done.Go(func() { l.relayToGateway(c, from) })
	}
	return c
}

func (l *datagramRelay) relayToGateway(c *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if !l.blocked.Load() {
			l.gatewayConn.WriteToUDPAddrPort(b[:n], to)
		}
	}
}

func (l *datagramRelay) closeSockets() {
	l.gatewayConn.Close()
	l.mu.Lock()
	for _, c := range l.sockets {
		c.Close()
	}
	l.mu.Unlock()
	l.done.Wait()
}
