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
func (n *Net) Cut(host netip.Addr) {
	n.mu.Lock()
	if n.cut == nil {
		n.cut = map[netip.Addr]bool{}
	}
	n.cut[host] = true
	var broken []*conn
	for c := range n.open {
		if hostOf(c.near) == host || hostOf(c.peer) == host {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// Mend puts a host back.
func (n *Net) Mend(host netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, host)
}

func hostOf(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr() }
