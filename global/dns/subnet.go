package dns

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// clientSubnet is a query's Client Subnet option (RFC 7871).
type clientSubnet struct {
	present    bool
	family     uint16
	sourceBits uint8
	octets     [16]byte // of the address, only as many as source covers
}

// parseOption reads the option's data and reports whether it is valid by the strict rules of RFC 7871, 7.1.2.
func (s *clientSubnet) parseOption(data []byte) bool {
	if len(data) < 4 {
		return false
	}
	family, source, scope, octets := binary.BigEndian.Uint16(data), data[2], data[3], data[4:]
	widest := familyBits(family)
	if widest == 0 || source > widest || scope != 0 || len(octets) != (int(source)+7)/8 {
		return false
	}
	if past := source % 8; past != 0 && octets[len(octets)-1]<<past != 0 {
		return false
	}
	*s = clientSubnet{present: true, family: family, sourceBits: source}
	copy(s.octets[:], octets)
	return true
}

// familyBits is the address length of a family, or 0 for an unknown family.
func familyBits(family uint16) uint8 {
	switch family {
	case 1:
		return 32
	case 2:
		return 128
	}
	return 0
}

// clientAddr returns the address to steer by, or false if the option withholds it.
func (s *clientSubnet) clientAddr() (netip.Addr, bool) {
	if !s.present || s.sourceBits == 0 {
		return netip.Addr{}, false
	}
	if s.family == 1 {
		return netip.AddrFrom4([4]byte(s.octets[:4])), true
	}
	return netip.AddrFrom16(s.octets), true
}

// appendOption writes the option with the scope of the answer. A client that withholds its address gets scope 0.
func (s *clientSubnet) appendOption(b []byte, scope uint8) []byte {
	n := (int(s.sourceBits) + 7) / 8
	if s.sourceBits == 0 {
		scope = 0
	}
	b = append(b, 0, dns.EDNS0SUBNET, 0, byte(4+n), byte(s.family>>8), byte(s.family), s.sourceBits, min(scope, familyBits(s.family)))
	return append(b, s.octets[:n]...)
}
