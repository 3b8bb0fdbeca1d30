package memnet

import (
	"context"
	"net"
	"net/netip"
)

// Host is a machine on the network: connections that it dials come from its address.
type Host struct {
	network *Net
	addr    netip.Addr
}

// HostAt is the machine at an address; it need not be declared.
func (n *Net) HostAt(addr netip.Addr) *Host { return &Host{n, addr} }

// Listen listens on an address of any host.
func (h *Host) Listen(address string) (net.Listener, error) { return h.network.Listen(address) }

// DialContext connects from this host.
func (h *Host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return h.network.dialFrom(ctx, h.addr, address)
}

// CutHost disconnects a host from the network: its connections break, datagrams from and to it are lost, and no
// connection to it can be opened.
func (n *Net) CutHost(host netip.Addr) { n.cutPair(hostPair{a: host}) }

// RestoreHost reconnects a host.
func (n *Net) RestoreHost(host netip.Addr) { n.restorePair(hostPair{a: host}) }

// CutLink is CutHost for the traffic between two hosts.
func (n *Net) CutLink(a, b netip.Addr) { n.cutPair(newHostPair(a, b)) }

// RestoreLink undoes CutLink.
func (n *Net) RestoreLink(a, b netip.Addr) { n.restorePair(newHostPair(a, b)) }

// hostPair is the traffic between two hosts, the lower address first; if b is not valid, all traffic of a.
type hostPair struct{ a, b netip.Addr }

func newHostPair(a, b netip.Addr) hostPair {
	if b.Less(a) {
		a, b = b, a
	}
	return hostPair{a, b}
}

// isCut reports whether two hosts are disconnected from each other; n.mu must be held.
func (n *Net) isCut(a, b netip.Addr) bool {
	return n.cutPairs[hostPair{a: a}] || n.cutPairs[hostPair{a: b}] || n.cutPairs[newHostPair(a, b)]
}

func (n *Net) cutPair(l hostPair) {
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

func (n *Net) restorePair(l hostPair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cutPairs, l)
}

func hostAddr(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr() }
