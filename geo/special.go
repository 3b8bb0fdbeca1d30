package geo

import "net/netip"

// specialRanges have no location: private, documentation, link-local, multicast and reserved networks of the IANA
// special-purpose registries (RFC 6890 and its updates).
var specialRanges = [...]string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/3", "::/8", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address contains, and how many bits of the outer address come
// before it: IPv4-mapped and -compatible, SIIT (RFC 7915), NAT64 (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380),
// where the client's address is stored inverted. Other addresses are returned unchanged.
func embeddedIPv4(a netip.Addr) (netip.Addr, int) {
	if !a.Is6() {
		return a, 0
	}
	b := a.As16()
	tail := [4]byte(b[12:])
	switch {
	case a.Is4In6():
		return netip.AddrFrom4(tail), 96
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), 16
	case [4]byte(b[:4]) == [4]byte{0x20, 0x01}:
		return netip.AddrFrom4([4]byte{^tail[0], ^tail[1], ^tail[2], ^tail[3]}), 96
	case [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}, [12]byte(b[:12]) == [12]byte{8: 0xff, 9: 0xff}:
		return netip.AddrFrom4(tail), 96
	case [12]byte(b[:12]) == [12]byte{} && (tail[0] != 0 || tail[1] != 0):
		return netip.AddrFrom4(tail), 96
	}
	return a, 0
}
