package dns

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// subnet is a query's Client Subnet option (RFC 7871).
type subnet struct {
	present bool
	family  uint16
	source  uint8
	octets  [16]byte // of the address, only as many as source asks for
}

// read takes over the option's data and reports whether it is as strict as RFC 7871, 7.1.2 wants it.
func (s *subnet) read(data []byte) bool {
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
	*s = subnet{present: true, family: family, source: source}
	copy(s.octets[:], octets)
	return true
}

// familyBits is the length of an address of the family, or 0 where there is no such family.
func familyBits(family uint16) uint8 {
	switch family {
	case 1:
		return 32
	case 2:
		return 128
	}
	return 0
}

// client is the address to steer by, or false where the option withholds it.
func (s *subnet) client() (netip.Addr, bool) {
	if !s.present || s.source == 0 {
		return netip.Addr{}, false
	}
	if s.family == 1 {
		return netip.AddrFrom4([4]byte(s.octets[:4])), true
	}
	return netip.AddrFrom16(s.octets), true
}

// append writes the option with the scope of the answer. A client that withholds its address gets scope 0.
func (s *subnet) append(b []byte, scope uint8) []byte {
	n := (int(s.source) + 7) / 8
	if s.source == 0 {
		scope = 0
	}
	b = append(b, 0, dns.EDNS0SUBNET, 0, byte(4+n), byte(s.family>>8), byte(s.family), s.source, min(scope, familyBits(s.family)))
	return append(b, s.octets[:n]...)
}
