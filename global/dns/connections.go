package dns

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/origin"
)

// connections bounds open connections, in all and for each address; an IPv6 client may have a whole /64, which counts as
// one address. When there are too many, the one that has been
// idle longest goes; one that is being served never does.
type connections struct {
	max, perAddr int

	mu       sync.Mutex
	open     map[*connection]struct{}
	byAddr   map[netip.Addr]int // by source
	stopping bool
}

// connection is one client's, idle while it waits for the first byte of a message.
type connection struct {
	conn  stream
	by    Transport
	from  netip.Addr
	net   netip.Addr // source of from
	owner *connections

	idle  bool // guarded by owner.mu, as are the next two
	since time.Time
	gone  bool // it was told to end
}

// stream is a TCP connection, or one under TLS.
type stream interface {
	net.Conn
	CloseWrite() error
}

func newConnections(limit int) *connections {
	return &connections{
		max: limit, perAddr: max(limit/4, 1),
		open: make(map[*connection]struct{}), byAddr: make(map[netip.Addr]int),
	}
}

// admit takes a connection in, or reports false when there is no room and nobody idle to make it.
func (cs *connections) admit(c *net.TCPConn) (*connection, bool) {
	conn := &connection{conn: c, by: TCP, from: c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), owner: cs}
	conn.net = origin.SourceOf(conn.from)
	return cs.enter(conn)
}

func (cs *connections) enter(conn *connection) (*connection, bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.stopping {
		return nil, false
	}
	if cs.byAddr[conn.net] >= cs.perAddr && !cs.evict(&conn.net) {
		return nil, false
	}
	if len(cs.open) >= cs.max && !cs.evict(nil) {
		return nil, false
	}
	cs.open[conn] = struct{}{}
	cs.byAddr[conn.net]++
	return conn, true
}

// evict ends the connection that has been idle longest, of one source or of all.
func (cs *connections) evict(of *netip.Addr) bool {
	var longest *connection
	for c := range cs.open {
		if !c.idle || of != nil && c.net != *of {
			continue
		}
		if longest == nil || c.since.Before(longest.since) {
			longest = c
		}
	}
	if longest == nil {
		return false
	}
	longest.end()
	cs.forget(longest)
	return true
}

// release forgets a connection that has ended.
func (cs *connections) release(c *connection) {
	_ = c.conn.Close()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.forget(c)
}

func (cs *connections) forget(c *connection) {
	if _, held := cs.open[c]; !held {
		return
	}
	delete(cs.open, c)
	if cs.byAddr[c.net]--; cs.byAddr[c.net] == 0 {
		delete(cs.byAddr, c.net)
	}
}

// finish lets no further connection in and ends each at the end of the message that it is in.
func (cs *connections) finish() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.stopping = true
	for c := range cs.open {
		c.gone = true
		if c.idle {
			c.end()
		}
	}
}

// cut closes all connections at once.
func (cs *connections) cut() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		_ = c.conn.Close()
	}
}

// end wakes an idle connection's reader for good. The caller holds owner.mu.
func (c *connection) end() {
	c.gone, c.idle = true, false
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// await waits for the first byte of the next message and reports false when the connection is to end. A message that
// came before the end is still served.
func (c *connection) await(r *bufio.Reader) bool {
	if !c.rest() {
		return false
	}
	_, err := r.Peek(1)
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.idle = false
	return err == nil
}

// rest marks the connection idle.
func (c *connection) rest() bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.gone {
		return false
	}
	c.idle, c.since = true, time.Now()
	return c.conn.SetReadDeadline(c.since.Add(idleTimeout)) == nil
}

// linger ends the connection so that answers on their way arrive: closing with queries unread would reset it, and the
// reset would overtake them.
func (c *connection) linger(r io.Reader) {
	if c.conn.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, r, lingerBytes)
}
