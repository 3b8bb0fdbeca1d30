package relay

import (
	"container/list"
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
	idle  *list.List                 // of net.Conn, the longest idle first; new ones that have sent nothing count as idle
	conns map[net.Conn]*list.Element // nil for one that is at work
}

// NewCrowd makes a Crowd of at most limit connections; 0 means DefaultMaxConnections.
func NewCrowd(limit int) *Crowd {
	if limit <= 0 {
		limit = DefaultMaxConnections
	}
	return &Crowd{max: limit, idle: list.New(), conns: map[net.Conn]*list.Element{}}
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
	el, known := c.conns[conn]
	switch {
	case s == http.StateNew:
		c.conns[conn] = c.idle.PushBack(conn)
		if len(c.conns) > c.max {
			c.evict()
		}
	case !known: // evicted, and on its way out
	case s == http.StateIdle && el == nil:
		c.conns[conn] = c.idle.PushBack(conn)
	case s == http.StateActive && el != nil:
		c.idle.Remove(el)
		c.conns[conn] = nil
	case s == http.StateClosed || s == http.StateHijacked:
		if el != nil {
			c.idle.Remove(el)
		}
		delete(c.conns, conn)
	}
}

func (c *Crowd) evict() {
	conn := c.idle.Remove(c.idle.Front()).(net.Conn)
	delete(c.conns, conn)
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn() // TLS would take the time to say goodbye
	}
	_ = conn.Close() // it is the server's to report
}
