package forward

import (
	"net"
	"net/http"
	"sync"
)

// DefaultMaxConnections is the limit of a ConnLimiter if none is given.
const DefaultMaxConnections = 20_000

// ConnLimiter bounds the open connections of a server. When one more arrives, it closes the connection that has
// been idle longest, or the new one if none is idle. TrackState is the server's ConnState hook.
type ConnLimiter struct {
	maxConns int

	mu       sync.Mutex
	idleRing trackedConn // a ring, the longest idle first; new connections without a request count as idle
	conns    map[net.Conn]*trackedConn
}

// trackedConn is an open connection. It is in the ring while idle.
type trackedConn struct {
	conn       net.Conn
	next, prev *trackedConn // nil while active
}

// NewConnLimiter creates a ConnLimiter of at most limit connections; 0 means DefaultMaxConnections.
func NewConnLimiter(limit int) *ConnLimiter {
	if limit <= 0 {
		limit = DefaultMaxConnections
	}
	c := &ConnLimiter{maxConns: limit, conns: map[net.Conn]*trackedConn{}}
	c.idleRing.next, c.idleRing.prev = &c.idleRing, &c.idleRing
	return c
}

// Len returns the number of open connections.
func (c *ConnLimiter) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// TrackState records a state change of a connection. It has the signature of http.Server.ConnState.
func (c *ConnLimiter) TrackState(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.conns[conn]
	switch {
	case s == http.StateNew:
		m = &trackedConn{conn: conn}
		c.conns[conn] = m
		c.addIdle(m)
		if len(c.conns) > c.maxConns {
			c.evictIdle()
		}
	case m == nil: // evicted and being closed
	case s == http.StateIdle && m.next == nil:
		c.addIdle(m)
	case s == http.StateActive:
		m.removeIdle()
	case s == http.StateClosed || s == http.StateHijacked:
		m.removeIdle()
		delete(c.conns, conn)
	}
}

// addIdle appends a connection to the ring.
func (c *ConnLimiter) addIdle(m *trackedConn) {
	m.prev, m.next = c.idleRing.prev, &c.idleRing
	m.prev.next, m.next.prev = m, m
}

// removeIdle removes a connection from the ring.
func (m *trackedConn) removeIdle() {
	if m.next != nil {
		m.prev.next, m.next.prev = m.next, m.prev
		m.next, m.prev = nil, nil
	}
}

func (c *ConnLimiter) evictIdle() {
	m := c.idleRing.next // at least one exists: the newest
	m.removeIdle()
	conn := m.conn
	delete(c.conns, conn)
	for t, ok := conn.(interface{ NetConn() net.Conn }); ok; t, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = t.NetConn() // skip the close_notify of TLS, which would take time
	}
	_ = conn.Close() // the server reports the error
}
