package dns

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// Sizes of a record whose owner is a pointer to the question's name, in bytes.
const (
	recordHeadLen = 2 + 10 // owner, type, class, TTL, length of the data
	recordLenA    = recordHeadLen + 4
	recordLenAAAA = recordHeadLen + 16
)

// PreparedRecords is one set of addresses in wire format, so that an answer is a copy. It is immutable. A record's
// owner is a pointer to the question, and its TTL is 0 until it is overwritten in the answer.
type PreparedRecords struct {
	v4, v6 []byte
	// serviceBinding is the data of the HTTPS and SVCB records; nil if the addresses do not serve TLS.
	serviceBinding []byte
	// The keys of the signature cache for each type.
	digest4, digest6, digestBinding dataDigest
}

// NewPreparedRecords encodes a set. With a port that is not 0, all addresses serve HTTPS there. The set then has a
// service binding too (RFC 9460), whose hints are the same addresses, so that clients that query it are steered the
// same way.
func NewPreparedRecords(addrs []netip.Addr, httpsPort uint16) *PreparedRecords {
	r := &PreparedRecords{}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			r.v4 = append(appendRecordHead(r.v4, dns.TypeA, 4), a.AsSlice()...)
		} else {
			r.v6 = append(appendRecordHead(r.v6, dns.TypeAAAA, 16), a.AsSlice()...)
		}
	}
	if httpsPort != 0 && len(addrs) > 0 {
		r.serviceBinding = appendBinding(nil, addrs, httpsPort)
	}
	r.digest4, r.digest6, r.digestBinding = computeDigest(r.v4), computeDigest(r.v6), computeDigest(r.serviceBinding)
	return r
}

// appendRecordHead appends the part of a record before its data.
func appendRecordHead(b []byte, rtype, length uint16) []byte {
	b = append(b, 0xc0, headerLen)
	b = binary.BigEndian.AppendUint16(b, rtype)
	b = append(b, 0, dns.ClassINET, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint16(b, length)
}

// Keys of a service binding's parameters (RFC 9460, 14.3.2).
const (
	svcbKeyALPN     = 1
	svcbKeyPort     = 3
	svcbKeyIPv4Hint = 4
	svcbKeyIPv6Hint = 6
)

// maxHints bounds the address hints of one family in a binding: they save a round trip and need not be complete.
const maxHints = 4

// appendBinding appends "1 . alpn=h2 port=... ipv4hint=... ipv6hint=...". The default port is left out.
func appendBinding(b []byte, addrs []netip.Addr, port uint16) []byte {
	b = append(b, 0, 1, 0) // priority 1, the owner itself
	b = append(b, 0, svcbKeyALPN, 0, 3, 2, 'h', '2')
	if port != 443 {
		b = binary.BigEndian.AppendUint16(append(b, 0, svcbKeyPort, 0, 2), port)
	}
	var v4, v6 []byte
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() && len(v4) < 4*maxHints {
			v4 = append(v4, a.AsSlice()...)
		} else if a.Is6() && len(v6) < 16*maxHints {
			v6 = append(v6, a.AsSlice()...)
		}
	}
	return appendHints(appendHints(b, svcbKeyIPv4Hint, v4), svcbKeyIPv6Hint, v6)
}

func appendHints(b []byte, key byte, hints []byte) []byte {
	if len(hints) == 0 {
		return b
	}
	b = binary.BigEndian.AppendUint16(append(b, 0, key), uint16(len(hints)))
	return append(b, hints...)
}

// digestFor returns the digest of the records of a type.
func (r *PreparedRecords) digestFor(qtype uint16) dataDigest {
	switch qtype {
	case dns.TypeA:
		return r.digest4
	case dns.TypeAAAA:
		return r.digest6
	}
	return r.digestBinding
}

// recordsOf returns the address records of a type and the size of each.
func (r *PreparedRecords) recordsOf(qtype uint16) (all []byte, size int) {
	if qtype == dns.TypeA {
		return r.v4, recordLenA
	}
	return r.v6, recordLenAAAA
}

// Kinds returns the types for which the set has records.
func (r *PreparedRecords) Kinds() (k RecordKinds) {
	if r == nil {
		return 0
	}
	if len(r.v4) > 0 {
		k |= KindA
	}
	if len(r.v6) > 0 {
		k |= KindAAAA
	}
	if r.serviceBinding != nil {
		k |= KindHTTPS | KindSVCB
	}
	return k
}
