package consensus_test

import (
	"net"
	"sync"
	"testing"
)

// link carries connections from one node to another, and can be cut: what is under way then waits, and arrives when the
// link is mended, unless it was severed. That is how a network fails: late rather than never.
type link struct {
	ln net.Listener
	to string

	mu     sync.Mutex
	open   chan struct{} // closed while the link is whole
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ln: ln, to: to, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.open)
	l.wg.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.carry(c) })
	}
}

func (l *link) carry(c net.Conn) {
	defer c.Close()
	if !l.add(c) {
		return
	}
	defer l.remove(c)
	l.wait()
	d, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer d.Close()
	if !l.add(d) {
		return
	}
	defer l.remove(d)
	back := make(chan struct{})
	go func() {
		l.pump(c, d)
		close(back)
	}()
	l.pump(d, c)
	<-back
}

// pump moves bytes while the link is whole, and ends both ways when one ends.
func (l *link) pump(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		l.wait()
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

func (l *link) wait() {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	<-open
}

func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	return !l.closed
}

func (l *link) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		l.open = make(chan struct{})
	default:
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

// sever breaks the connections there are, as a firewall that lost its table does.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	_ = l.ln.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.sever()
	l.mend()
	l.wg.Wait()
}
