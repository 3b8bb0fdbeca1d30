package consensus

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/spillway-lb/spillway/internal/origin"
)

// maxHandshakes bounds the connections whose peer has not yet shown a certificate. Each costs a file descriptor and the
// buffers of a TLS handshake.
const maxHandshakes = 128

// handshakes bounds the connections whose peer has not yet shown a certificate. Once it is full, each new connection
// closes the oldest one of the source that has the most. A source is an IPv4 address or an IPv6 /64. Idle connections
// thus never keep a member out, and a flood from one source closes only its own connections.
type handshakes struct {
	mu   sync.Mutex
	open []handshake // oldest first
}

type handshake struct {
	conn   net.Conn
	source string
}

// add counts c and returns the connection that is to be closed in its place, or nil.
func (h *handshakes) add(c net.Conn) (evicted net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) >= maxHandshakes {
		at := h.oldestOfLargest()
		evicted = h.open[at].conn
		h.open = slices.Delete(h.open, at, at+1)
	}
	h.open = append(h.open, handshake{conn: c, source: sourceOf(c.RemoteAddr())})
	return evicted
}

// remove ends the count of c: its handshake is over.
func (h *handshakes) remove(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = slices.DeleteFunc(h.open, func(o handshake) bool { return o.conn == c })
}

// oldestOfLargest is the position of the oldest connection of the source that has the most. Among sources that have as
// many, it is the oldest connection.
func (h *handshakes) oldestOfLargest() int {
	count, most := map[string]int{}, 0
	for _, o := range h.open {
		count[o.source]++
		most = max(most, count[o.source])
	}
	return slices.IndexFunc(h.open, func(o handshake) bool { return count[o.source] == most })
}

// sourceOf is the IPv4 address or the IPv6 /64 that a connection comes from.
func sourceOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return origin.SourceOf(ip).String()
	}
	return host
}
