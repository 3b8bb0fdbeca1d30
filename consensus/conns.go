package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
)

// conns knows every open connection, so that stopping can close them all.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	perID  map[string]int // connections of one peer, by protocol
	closed bool
}

func newConns() *conns {
	return &conns{open: make(map[net.Conn]struct{}), perID: make(map[string]int)}
}

// add takes responsibility for c; false when everything is closed already, and then c is closed too.
func (s *conns) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *conns) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// claim counts one more connection under a key of protocol and peer, up to limit.
func (s *conns) claim(id string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.perID[id] >= limit {
		return false
	}
	s.perID[id]++
	return true
}

func (s *conns) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.perID[id]--; s.perID[id] <= 0 {
		delete(s.perID, id)
	}
}

func (s *conns) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
}

// tracked is a connection that leaves the books when it is closed.
type tracked struct {
	net.Conn
	leave func()
	once  sync.Once
}

// Close closes once and for all.
func (t *tracked) Close() error {
	err := t.Conn.Close()
	t.once.Do(t.leave)
	return err
}

func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
