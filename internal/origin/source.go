package origin

import "net/netip"

// SourceOf is what bounds per client count by: an IPv4 address, or the /64 of an IPv6 one, all of which one client may have.
func SourceOf(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
