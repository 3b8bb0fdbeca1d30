package dns

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// Sizes of a record whose owner is a pointer to the question's name, in bytes.
const (
	sizeHead = 2 + 10 // owner, type, class, TTL, length of the data
	sizeA    = sizeHead + 4
	sizeAAAA = sizeHead + 16
)

// Records is one set of addresses in the form in which it goes out, so that an answer is a copy. It is immutable. A
// record's owner points to the question, and its TTL is 0 until the answer's is written over it.
type Records struct {
	v4, v6 []byte
	// binding is the data of the HTTPS and SVCB records; nil where clients may not be told to speak TLS.
	binding []byte
	// What signatures of each are found by.
	digest4, digest6, digestB digest
}

// NewRecords makes a set ready. A port that is not 0 says that all addresses speak HTTPS there: the set then holds a
// service binding too (RFC 9460), whose hints are the same addresses, so that whoever asks for it is steered alike.
func NewRecords(addrs []netip.Addr, httpsPort uint16) *Records {
	r := &Records{}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			r.v4 = append(appendHead(r.v4, dns.TypeA, 4), a.AsSlice()...)
		} else {
			r.v6 = append(appendHead(r.v6, dns.TypeAAAA, 16), a.AsSlice()...)
		}
	}
	if httpsPort != 0 && len(addrs) > 0 {
		r.binding = appendBinding(nil, addrs, httpsPort)
	}
	r.digest4, r.digest6, r.digestB = digestOf(r.v4), digestOf(r.v6), digestOf(r.binding)
	return r
}

// appendHead appends what stands before a record's data.
func appendHead(b []byte, rtype, length uint16) []byte {
	b = append(b, 0xc0, headerLen)
	b = binary.BigEndian.AppendUint16(b, rtype)
	b = append(b, 0, dns.ClassINET, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint16(b, length)
}

// Keys of a service binding's parameters (RFC 9460, 14.3.2).
const (
	keyALPN = 1
	keyPort = 3
	keyV4   = 4
	keyV6   = 6
)

// maxHints bounds a binding's hints of one family: they spare a round trip, they need not be all.
const maxHints = 4

// appendBinding appends "1 . alpn=h2 port=... ipv4hint=... ipv6hint=...". The port is left out where it is the usual one.
func appendBinding(b []byte, addrs []netip.Addr, port uint16) []byte {
	b = append(b, 0, 1, 0) // priority 1, the owner itself
	b = append(b, 0, keyALPN, 0, 3, 2, 'h', '2')
	if port != 443 {
		b = binary.BigEndian.AppendUint16(append(b, 0, keyPort, 0, 2), port)
	}
	var v4, v6 []byte
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() && len(v4) < 4*maxHints {
			v4 = append(v4, a.AsSlice()...)
		} else if a.Is6() && len(v6) < 16*maxHints {
			v6 = append(v6, a.AsSlice()...)
		}
	}
	return appendHints(appendHints(b, keyV4, v4), keyV6, v6)
}

func appendHints(b []byte, key byte, hints []byte) []byte {
	if len(hints) == 0 {
		return b
	}
	b = binary.BigEndian.AppendUint16(append(b, 0, key), uint16(len(hints)))
	return append(b, hints...)
}

// digest is that of the records of a type.
func (r *Records) digest(qtype uint16) digest {
	switch qtype {
	case dns.TypeA:
		return r.digest4
	case dns.TypeAAAA:
		return r.digest6
	}
	return r.digestB
}

// of returns the address records of a type and the size of each.
func (r *Records) of(qtype uint16) (all []byte, size int) {
	if qtype == dns.TypeA {
		return r.v4, sizeA
	}
	return r.v6, sizeAAAA
}
