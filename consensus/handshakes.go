package consensus

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
)

// maxHandshakes bounds the connections whose peer has not yet shown a certificate. Each costs a file descriptor and the
// buffers of a TLS handshake.
const maxHandshakes = 128

// pendingHandshakes bounds the connections whose peer has not yet shown a certificate. Once it is full, each new connection
// closes the oldest one of the source that has the most. A source is an IPv4 address or an IPv6 /64. Idle connections
// thus never keep a member out, and a flood from one source closes only its own connections.
type pendingHandshakes struct {
	mu   sync.Mutex
	open []pendingHandshake // oldest first
}

type pendingHandshake struct {
	conn   net.Conn
	source string
}

// addConn counts c and returns the connection that is to be closed in its place, or nil.
func (h *pendingHandshakes) addConn(c net.Conn) (evicted net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) >= maxHandshakes {
		at := h.oldestOfLargestSource()
		evicted = h.open[at].conn
		h.open = slices.Delete(h.open, at, at+1)
	}
	h.open = append(h.open, pendingHandshake{conn: c, source: sourceNetwork(c.RemoteAddr())})
	return evicted
}

// removeConn removes c when its handshake is over.
func (h *pendingHandshakes) removeConn(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = slices.DeleteFunc(h.open, func(o pendingHandshake) bool { return o.conn == c })
}

// oldestOfLargestSource returns the index of the oldest connection of the source with the most connections. Ties go
// to the oldest connection.
func (h *pendingHandshakes) oldestOfLargestSource() int {
	count, most := map[string]int{}, 0
	for _, o := range h.open {
		count[o.source]++
		most = max(most, count[o.source])
	}
	return slices.IndexFunc(h.open, func(o pendingHandshake) bool { return count[o.source] == most })
}

// sourceNetwork returns the IPv4 address or the IPv6 /64 of a connection's peer.
func sourceNetwork(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return clientip.ClientLimitKey(ip).String()
	}
	return host
}
