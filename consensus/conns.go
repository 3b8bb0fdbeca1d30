package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
)

// connSet keeps every open connection, so that Stop can close them all.
type connSet struct {
	mu         sync.Mutex
	open       map[net.Conn]struct{}
	slotsInUse map[string]int // connections of one peer, by protocol
	closed     bool
}

func newConnSet() *connSet {
	return &connSet{open: make(map[net.Conn]struct{}), slotsInUse: make(map[string]int)}
}

// addConn registers c. It returns false when the set is already closed, and then closes c too.
func (s *connSet) addConn(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *connSet) removeConn(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// claimSlot counts one more connection under a key of protocol and peer, up to limit.
func (s *connSet) claimSlot(id string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slotsInUse[id] >= limit {
		return false
	}
	s.slotsInUse[id]++
	return true
}

func (s *connSet) releaseSlot(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slotsInUse[id]--; s.slotsInUse[id] <= 0 {
		delete(s.slotsInUse, id)
	}
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
}

// trackedConn is a connection that removes itself from its connSet when it is closed.
type trackedConn struct {
	net.Conn
	onClose func()
	once    sync.Once
}

// Close closes the connection; further calls do nothing.
func (t *trackedConn) Close() error {
	err := t.Conn.Close()
	t.once.Do(t.onClose)
	return err
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
