package consensus

import (
	"fmt"
	"net"
	"testing"

	"pgregory.net/rapid"
)

// addrConn is a connection from an address.
type addrConn struct {
	net.Conn
	remote string
}

// RemoteAddr implements net.Conn.
func (c *addrConn) RemoteAddr() net.Addr { return netAddr(c.remote) }

// TestLargestSourceIsEvicted: a source that fills the table loses its own connections, the oldest first, and one /64
// is one source.
func TestLargestSourceIsEvicted(t *testing.T) {
	var h pendingHandshakes
	member := &addrConn{remote: "192.0.2.1:7000"}
	if out := h.addConn(member); out != nil {
		t.Fatalf("an empty table evicts %v", out)
	}
	var flood []*addrConn
	for i := range 3 * maxHandshakes {
		c := &addrConn{remote: fmt.Sprintf("[2001:db8::%x:%x]:7000", i%5, i)}
		flood = append(flood, c)
		out := h.addConn(c)
		switch {
		case i < maxHandshakes-1 && out != nil:
			t.Fatalf("connection %d evicts %v", i, out)
		case i >= maxHandshakes-1 && out != flood[i-maxHandshakes+1]:
			t.Fatalf("connection %d evicts %v, want the oldest of its own source", i, out)
		}
	}
	last := flood[len(flood)-1]
	h.removeConn(last)
	h.removeConn(last)
	if out := h.addConn(&addrConn{remote: "192.0.2.2:7000"}); out != nil {
		t.Fatalf("a table with room evicts %v", out)
	}
	if out := h.addConn(&addrConn{remote: "192.0.2.2:7001"}); out != flood[2*maxHandshakes+1] {
		t.Fatalf("another source evicts %v, want the oldest of the flood", out)
	}
}

// TestHandshakeEvictionIsFair: the table keeps its bound and every new connection, and evicts only from a source that has the
// most.
func TestHandshakeEvictionIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h pendingHandshakes
		sources, held := rapid.IntRange(1, 2*maxHandshakes).Draw(t, "sources"), map[string]int{}
		for range rapid.IntRange(0, 4*maxHandshakes).Draw(t, "connections") {
			c := &addrConn{remote: fmt.Sprintf("192.0.%d:7000", rapid.IntRange(0, sources).Draw(t, "source"))}
			evicted := h.addConn(c)
			if evicted != nil {
				from := sourceNetwork(evicted.RemoteAddr())
				for source, n := range held {
					if n > held[from] {
						t.Fatalf("evicted one of %s with %d, and %s has %d", from, held[from], source, n)
					}
				}
				held[from]--
			}
			held[sourceNetwork(c.RemoteAddr())]++
			if len(h.open) > maxHandshakes || h.open[len(h.open)-1].conn != c {
				t.Fatalf("%d are open, the last is %v", len(h.open), h.open[len(h.open)-1])
			}
		}
	})
}
