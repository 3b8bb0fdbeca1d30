package clientip

import "net/netip"

// ClientLimitKey returns the key for limits per client: an IPv4 address, or the /64 of an IPv6 address, because
// one client may own all of it.
func ClientLimitKey(a netip.Addr) netip.Addr {
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
