package consensus

import (
	"fmt"
	"net"
	"testing"

	"pgregory.net/rapid"
)

// caller is a connection from an address.
type caller struct {
	net.Conn
	from string
}

// RemoteAddr implements net.Conn.
func (c *caller) RemoteAddr() net.Addr { return address(c.from) }

// TestTheLargestSourceIsEvicted: a source that fills the table loses its own connections, the oldest first, and one /64
// is one source.
func TestTheLargestSourceIsEvicted(t *testing.T) {
	var h handshakes
	member := &caller{from: "192.0.2.1:7000"}
	if out := h.add(member); out != nil {
		t.Fatalf("an empty table evicts %v", out)
	}
	var flood []*caller
	for i := range 3 * maxHandshakes {
		c := &caller{from: fmt.Sprintf("[2001:db8::%x:%x]:7000", i%5, i)}
		flood = append(flood, c)
		out := h.add(c)
		switch {
		case i < maxHandshakes-1 && out != nil:
			t.Fatalf("connection %d evicts %v", i, out)
		case i >= maxHandshakes-1 && out != flood[i-maxHandshakes+1]:
			t.Fatalf("connection %d evicts %v, want the oldest of its own source", i, out)
		}
	}
	last := flood[len(flood)-1]
	h.remove(last)
	h.remove(last)
	if out := h.add(&caller{from: "192.0.2.2:7000"}); out != nil {
		t.Fatalf("a table with room evicts %v", out)
	}
	if out := h.add(&caller{from: "192.0.2.2:7001"}); out != flood[2*maxHandshakes+1] {
		t.Fatalf("another source evicts %v, want the oldest of the flood", out)
	}
}

// TestHandshakesAreFair: the table keeps its bound and every new connection, and evicts only from a source that has the
// most.
func TestHandshakesAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h handshakes
		sources, held := rapid.IntRange(1, 2*maxHandshakes).Draw(t, "sources"), map[string]int{}
		for range rapid.IntRange(0, 4*maxHandshakes).Draw(t, "connections") {
			c := &caller{from: fmt.Sprintf("192.0.%d:7000", rapid.IntRange(0, sources).Draw(t, "source"))}
			evicted := h.add(c)
			if evicted != nil {
				from := sourceOf(evicted.RemoteAddr())
				for source, n := range held {
					if n > held[from] {
						t.Fatalf("evicted one of %s with %d, and %s has %d", from, held[from], source, n)
					}
				}
				held[from]--
			}
			held[sourceOf(c.RemoteAddr())]++
			if len(h.open) > maxHandshakes || h.open[len(h.open)-1].conn != c {
				t.Fatalf("%d are open, the last is %v", len(h.open), h.open[len(h.open)-1])
			}
		}
	})
}
