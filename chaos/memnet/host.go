package memnet

import (
	"context"
	"net"
	"net/netip"
)

// Host is a machine on the network: what it dials comes from its address.
type Host struct {
	net  *Net
	addr netip.Addr
}

// Host is the machine at an address; it need not be declared.
func (n *Net) Host(addr netip.Addr) *Host { return &Host{n, addr} }

// Listen takes an address, of whichever host.
func (h *Host) Listen(address string) (net.Listener, error) { return h.net.Listen(address) }

// DialContext connects from this host.
func (h *Host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return h.net.dial(ctx, h.addr, address)
}

// Cut takes a host off the network, as if its plug were pulled: its connections break, what it sends and what is sent to
// it is lost, and nobody can connect.
func (n *Net) Cut(host netip.Addr) { n.sever(link{a: host}) }

// Mend puts a host back.
func (n *Net) Mend(host netip.Addr) { n.join(link{a: host}) }

// Sever does to what passes between two hosts what Cut does to all of one's.
func (n *Net) Sever(a, b netip.Addr) { n.sever(between(a, b)) }

// Join undoes Sever.
func (n *Net) Join(a, b netip.Addr) { n.join(between(a, b)) }

// link is what passes between two hosts, the lesser one first; b is not valid for all that passes a.
type link struct{ a, b netip.Addr }

func between(a, b netip.Addr) link {
	if b.Less(a) {
		a, b = b, a
	}
	return link{a, b}
}

// severed reports whether nothing passes between two hosts; n.mu is held.
func (n *Net) severed(a, b netip.Addr) bool {
	return n.cut[link{a: a}] || n.cut[link{a: b}] || n.cut[between(a, b)]
}

func (n *Net) sever(l link) {
	n.mu.Lock()
	if n.cut == nil {
		n.cut = map[link]bool{}
	}
	n.cut[l] = true
	var broken []*conn
	for c := range n.open {
		if n.severed(hostOf(c.near), hostOf(c.peer)) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

func (n *Net) join(l link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, l)
}

func hostOf(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr() }
