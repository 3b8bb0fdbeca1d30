package relay

import (
	"net"
	"net/http"
	"sync"
)

// DefaultMaxConnections is a Crowd's bound when none is given.
const DefaultMaxConnections = 20_000

// Crowd bounds a server's open connections by closing, when one more comes, the one that has been idle the longest. When
// none is idle the new one is closed. Track is the server's ConnState.
type Crowd struct {
	max int

	mu    sync.Mutex
	idle  member // a ring, the longest idle first; new ones that have sent nothing count as idle
	conns map[net.Conn]*member
}

// member is an open connection. It is in the ring while it is idle.
type member struct {
	conn       net.Conn
	next, prev *member // nil while it is at work
}

// NewCrowd makes a Crowd of at most limit connections; 0 means DefaultMaxConnections.
func NewCrowd(limit int) *Crowd {
	if limit <= 0 {
		limit = DefaultMaxConnections
	}
	c := &Crowd{max: limit, conns: map[net.Conn]*member{}}
	c.idle.next, c.idle.prev = &c.idle, &c.idle
	return c
}

// Len is the number of open connections.
func (c *Crowd) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// Track follows one connection. It has the form of http.Server.ConnState.
func (c *Crowd) Track(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.conns[conn]
	switch {
	case s == http.StateNew:
		m = &member{conn: conn}
		c.conns[conn] = m
		c.rests(m)
		if len(c.conns) > c.max {
			c.evict()
		}
	case m == nil: // evicted, and on its way out
	case s == http.StateIdle && m.next == nil:
		c.rests(m)
	case s == http.StateActive:
		m.leave()
	case s == http.StateClosed || s == http.StateHijacked:
		m.leave()
		delete(c.conns, conn)
	}
}

// rests puts a connection at the end of the ring.
func (c *Crowd) rests(m *member) {
	m.prev, m.next = c.idle.prev, &c.idle
	m.prev.next, m.next.prev = m, m
}

// leave takes a connection out of the ring.
func (m *member) leave() {
	if m.next != nil {
		m.prev.next, m.next.prev = m.next, m.prev
		m.next, m.prev = nil, nil
	}
}

func (c *Crowd) evict() {
	m := c.idle.next // there is one at least: the newest
	m.leave()
	conn := m.conn
	delete(c.conns, conn)
	for t, ok := conn.(interface{ NetConn() net.Conn }); ok; t, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = t.NetConn() // TLS would take the time to say goodbye
	}
	_ = conn.Close() // it is the server's to report
}
