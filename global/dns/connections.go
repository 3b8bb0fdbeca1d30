package dns

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
)

// connTable bounds open connections, in total and per address. An IPv6 client may have a whole /64, which counts as
// one address. Above a bound, the connection that has been idle longest is closed. A connection that is being served
// is never closed for this reason.
type connTable struct {
	maxConns, maxPerSource int

	mu       sync.Mutex
	open     map[*tcpConn]struct{}
	bySource map[netip.Addr]int // by source
	stopping bool
}

// tcpConn is the connection of one client. It is idle while it waits for the first byte of a message.
type tcpConn struct {
	conn       tcpStream
	transport  Transport
	clientAddr netip.Addr
	source     netip.Addr // source of from
	table      *connTable

	idle      bool // guarded by owner.mu, as are the next two
	idleSince time.Time
	ending    bool // it has been asked to end
}

// tcpStream is a TCP connection, or one under TLS.
type tcpStream interface {
	net.Conn
	CloseWrite() error
}

func newConnTable(limit int) *connTable {
	return &connTable{
		maxConns: limit, maxPerSource: max(limit/4, 1),
		open: make(map[*tcpConn]struct{}), bySource: make(map[netip.Addr]int),
	}
}

// admitConn registers a connection, or returns false if the table is full and no connection is idle.
func (cs *connTable) admitConn(c *net.TCPConn) (*tcpConn, bool) {
	conn := &tcpConn{conn: c, transport: TCP, clientAddr: c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), table: cs}
	conn.source = clientip.ClientLimitKey(conn.clientAddr)
	return cs.addConn(conn)
}

func (cs *connTable) addConn(conn *tcpConn) (*tcpConn, bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.stopping {
		return nil, false
	}
	if cs.bySource[conn.source] >= cs.maxPerSource && !cs.evictIdle(&conn.source) {
		return nil, false
	}
	if len(cs.open) >= cs.maxConns && !cs.evictIdle(nil) {
		return nil, false
	}
	cs.open[conn] = struct{}{}
	cs.bySource[conn.source]++
	return conn, true
}

// evictIdle ends the connection that has been idle longest, of one source or of all.
func (cs *connTable) evictIdle(of *netip.Addr) bool {
	var longest *tcpConn
	for c := range cs.open {
		if !c.idle || of != nil && c.source != *of {
			continue
		}
		if longest == nil || c.idleSince.Before(longest.idleSince) {
			longest = c
		}
	}
	if longest == nil {
		return false
	}
	longest.endIdle()
	cs.removeConn(longest)
	return true
}

// releaseConn removes a connection that has ended.
func (cs *connTable) releaseConn(c *tcpConn) {
	_ = c.conn.Close()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.removeConn(c)
}

func (cs *connTable) removeConn(c *tcpConn) {
	if _, held := cs.open[c]; !held {
		return
	}
	delete(cs.open, c)
	if cs.bySource[c.source]--; cs.bySource[c.source] == 0 {
		delete(cs.bySource, c.source)
	}
}

// finishAll refuses further connections and ends each present one after its current message.
func (cs *connTable) finishAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.stopping = true
	for c := range cs.open {
		c.ending = true
		if c.idle {
			c.endIdle()
		}
	}
}

// closeAll closes all connections at once.
func (cs *connTable) closeAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		_ = c.conn.Close()
	}
}

// endIdle permanently wakes an idle connection's reader. The caller holds owner.mu.
func (c *tcpConn) endIdle() {
	c.ending, c.idle = true, false
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// awaitMessage waits for the first byte of the next message and returns false when the connection is to end. A
// message that arrived before the end is still served.
func (c *tcpConn) awaitMessage(r *bufio.Reader) bool {
	if !c.markIdle() {
		return false
	}
	_, err := r.Peek(1)
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.idle = false
	return err == nil
}

// markIdle marks the connection idle.
func (c *tcpConn) markIdle() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.ending {
		return false
	}
	c.idle, c.idleSince = true, time.Now()
	return c.conn.SetReadDeadline(c.idleSince.Add(idleTimeout)) == nil
}

// lingerClose ends the connection so that answers in transit arrive: closing with unread queries would reset it, and
// the reset would overtake the answers.
func (c *tcpConn) lingerClose(r io.Reader) {
	if c.conn.CloseWrite() != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, r, lingerBytes)
}
