package fleet

import (
	"net"
	"net/netip"
	"time"
)

// memConn is one end of a connection.
type memConn struct {
	network               *MemoryNetwork
	inbound, outbound     *byteStream
	localAddr, remoteAddr net.Addr
}

// newConnPair returns both ends of a connection.
func (n *MemoryNetwork) newConnPair(from, to netip.AddrPort) (near, far net.Conn) {
	late := n.streamDelay(from.Addr(), to.Addr())
	up, down := newByteStream(late), newByteStream(late)
	client, server := net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	a, b := &memConn{n, down, up, client, server}, &memConn{n, up, down, server, client}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		n.conns = map[*memConn]struct{}{}
	}
	n.conns[a], n.conns[b] = struct{}{}, struct{}{}
	return a, b
}

func (c *memConn) Read(b []byte) (int, error)  { return c.inbound.readBytes(b) }
func (c *memConn) Write(b []byte) (int, error) { return c.outbound.writeBytes(b) }

// Close ends both directions: the other side reads what is in transit, and then the end.
func (c *memConn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	c.outbound.closeWrite()
	c.inbound.closeRead()
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.localAddr }
func (c *memConn) RemoteAddr() net.Addr { return c.remoteAddr }

func (c *memConn) SetDeadline(t time.Time) error {
	c.inbound.setDeadline(&c.inbound.readDeadline, t)
	c.outbound.setDeadline(&c.outbound.writeDeadline, t)
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.inbound.setDeadline(&c.inbound.readDeadline, t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.outbound.setDeadline(&c.outbound.writeDeadline, t)
	return nil
}

// resetConn breaks both directions at once. Data in transit is lost.
func (c *memConn) resetConn() {
	for _, w := range []*byteStream{c.inbound, c.outbound} {
		w.mu.Lock()
		w.reset, w.buf, w.arrivedBytes = true, nil, 0
		w.changed.Broadcast()
		w.mu.Unlock()
	}
}
