package consensus_test

import (
	"net"
	"sync"
	"testing"
)

// faultyLink carries connections from one node to another, and can be cut. Data in transit then waits and arrives
// when the link is restored, unless the connection was broken. Networks fail in this way: data comes late rather than
// never.
type faultyLink struct {
	ln     net.Listener
	target string

	mu     sync.Mutex
	whole  chan struct{} // closed while the link is up
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

func newFaultyLink(t *testing.T, to string) *faultyLink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &faultyLink{ln: ln, target: to, whole: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.whole)
	l.wg.Go(l.acceptLoop)
	t.Cleanup(l.closeLink)
	return l
}

func (l *faultyLink) acceptLoop() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.forwardConn(c) })
	}
}

func (l *faultyLink) forwardConn(c net.Conn) {
	defer c.Close()
	if !l.addConn(c) {
		return
	}
	defer l.removeConn(c)
	l.awaitWhole()
	d, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer d.Close()
	if !l.addConn(d) {
		return
	}
	defer l.removeConn(d)
	back := make(chan struct{})
	go func() {
		l.copyBytes(c, d)
		close(back)
	}()
	l.copyBytes(d, c)
	<-back
}

// copyBytes copies bytes while the link is up, and ends both directions when one ends.
func (l *faultyLink) copyBytes(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		l.awaitWhole()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

func (l *faultyLink) awaitWhole() {
	l.mu.Lock()
	open := l.whole
	l.mu.Unlock()
	<-open
}

func (l *faultyLink) addConn(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	return !l.closed
}

func (l *faultyLink) removeConn(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *faultyLink) blockTraffic() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
		l.whole = make(chan struct{})
	default:
	}
}

func (l *faultyLink) unblockTraffic() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
	default:
		close(l.whole)
	}
}

// breakConns breaks the present connections, like a firewall that lost its connection table.
func (l *faultyLink) breakConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *faultyLink) closeLink() {
	_ = l.ln.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.breakConns()
	l.unblockTraffic()
	l.wg.Wait()
}
