package fleet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// MemoryHost is a machine on the network: connections that it dials come from its address.
type MemoryHost struct {
	network *MemoryNetwork
	addr    netip.Addr
}

// HostAt is the machine at an address; it need not be declared.
func (n *MemoryNetwork) HostAt(addr netip.Addr) *MemoryHost { return &MemoryHost{n, addr} }

// Listen listens on an address of any host.
func (h *MemoryHost) Listen(address string) (net.Listener, error) { return h.network.Listen(address) }

// DialContext connects from this host.
func (h *MemoryHost) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return h.network.dialFrom(ctx, h.addr, address)
}

// CutHost disconnects a host from the network: its connections break, datagrams from and to it are lost, and no
// connection to it can be opened.
func (n *MemoryNetwork) CutHost(host netip.Addr) { n.cutPair(hostPair{a: host}) }

// RestoreHost reconnects a host.
func (n *MemoryNetwork) RestoreHost(host netip.Addr) { n.restorePair(hostPair{a: host}) }

// CutLink is CutHost for the traffic between two hosts.
func (n *MemoryNetwork) CutLink(a, b netip.Addr) { n.cutPair(newHostPair(a, b)) }

// RestoreLink undoes CutLink.
func (n *MemoryNetwork) RestoreLink(a, b netip.Addr) { n.restorePair(newHostPair(a, b)) }

// hostPair is the traffic between two hosts, the lower address first; if b is not valid, all traffic of a.
type hostPair struct{ a, b netip.Addr }

func newHostPair(a, b netip.Addr) hostPair {
	if b.Less(a) {
		a, b = b, a
	}
	return hostPair{a, b}
}

// isCut reports whether two hosts are disconnected from each other; n.mu must be held.
func (n *MemoryNetwork) isCut(a, b netip.Addr) bool {
	return n.cutPairs[hostPair{a: a}] || n.cutPairs[hostPair{a: b}] || n.cutPairs[newHostPair(a, b)]
}

func (n *MemoryNetwork) cutPair(l hostPair) {
	n.mu.Lock()
	if n.cutPairs == nil {
		n.cutPairs = map[hostPair]bool{}
	}
	n.cutPairs[l] = true
	var broken []*memConn
	for c := range n.conns {
		if n.isCut(hostAddr(c.localAddr), hostAddr(c.remoteAddr)) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.resetConn()
	}
}

func (n *MemoryNetwork) restorePair(l hostPair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cutPairs, l)
}

func hostAddr(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr() }

// ListenPacket listens for datagrams on an address; port 0 chooses a free one, and no host means this host.
func (h *MemoryHost) ListenPacket(address string) (net.PacketConn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	if host == "" {
		host = h.addr.String()
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listening in memory: %w", err)
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for at.Port() == 0 || port == "0" && n.sockets[at] != nil {
		at = netip.AddrPortFrom(at.Addr(), n.nextPort())
	}
	if n.sockets[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "memory", Addr: net.UDPAddrFromAddrPort(at), Err: syscall.EADDRINUSE}
	}
	if n.sockets == nil {
		n.sockets = map[netip.AddrPort]*packetSocket{}
	}
	s := &packetSocket{network: n, addr: at}
	s.changed = sync.NewCond(&s.mu)
	n.sockets[at] = s
	return s, nil
}
