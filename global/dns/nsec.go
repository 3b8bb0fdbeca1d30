package dns

import (
	"crypto/sha256"
	"slices"

	"github.com/miekg/dns"
)

// Denial is compact (RFC 9824): the one NSEC record of an answer is at the queried name and ends at the immediate
// successor of that name, so it lists the types of that name only. For a name that does not exist it lists the type
// NXNAME.

// RecordKinds is the set of record types that a steered name may have, for any client.
type RecordKinds uint8

// The kinds.
const (
	KindA RecordKinds = 1 << iota
	KindAAAA
	KindHTTPS
	KindSVCB
	allKinds = KindA | KindAAAA | KindHTTPS | KindSVCB
)

var kindTypes = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB}

// kindOfType returns the kind of a type, or 0.
func kindOfType(rtype uint16) RecordKinds {
	for i, t := range kindTypes {
		if t == rtype {
			return 1 << i
		}
	}
	return 0
}

// appendTypes appends the types of the kinds to a list.
func (k RecordKinds) appendTypes(list []uint16) []uint16 {
	for i, t := range kindTypes {
		if k&(1<<i) != 0 {
			list = append(list, t)
		}
	}
	return list
}

// typeBitmap returns the type bitmap of an NSEC record (RFC 4034, 4.1.2), including RRSIG and NSEC themselves.
func typeBitmap(types ...uint16) []byte {
	types = append(types, dns.TypeRRSIG, dns.TypeNSEC)
	slices.Sort(types)
	var out []byte
	for i := 0; i < len(types); {
		window := types[i] >> 8
		var block [32]byte
		last := 0
		for ; i < len(types) && types[i]>>8 == window; i++ {
			low := int(types[i] & 0xff)
			block[low/8] |= 0x80 >> (low % 8)
			last = low / 8
		}
		out = append(out, byte(window), byte(last+1))
		out = append(out, block[:last+1]...)
	}
	return out
}

// typeList is a bitmap with the digest under which its signatures are cached.
type typeList struct {
	bits   []byte
	digest dataDigest
}

func newTypeList(types ...uint16) typeList {
	b := typeBitmap(types...)
	return typeList{b, computeDigest(b)}
}

// kindLists holds the lists of all steered names with no other role, absentList that of names that do not exist.
var (
	kindLists = func() (out [allKinds + 1]typeList) {
		for k := range out {
			out[k] = newTypeList(RecordKinds(k).appendTypes(nil)...)
		}
		return out
	}()
	absentList = newTypeList(dns.TypeNXNAME)
)

// nsecData returns the data of the NSEC record at a name, in wire format and lower case.
func nsecData(name []byte, list typeList) []byte { return append(nextName(name), list.bits...) }

// nextName returns the immediate successor of a name in DNSSEC order (RFC 4034, 6.1): the first name below it or, if
// that is too long, the next at its level (RFC 4471, 3.1.2).
func nextName(name []byte) []byte {
	first := int(name[0])
	switch {
	case len(name)+2 <= maxName:
		return append([]byte{1, 0}, name...)
	case len(name)+1 <= maxName && first < 63:
		out := append([]byte{byte(first + 1)}, name[1:1+first]...)
		return append(append(out, 0), name[1+first:]...)
	}
	out := slices.Clone(name)
	for i := first; i > 0; i-- {
		switch c := out[i]; {
		case c == 0xff:
			continue // 0xff has no successor: it is dropped and the octet before it is incremented
		case c == 'A'-1:
			out[i] = 'Z' + 1 // upper-case letters sort in place of lower-case ones
		default:
			out[i]++
		}
		rest := out[1+first:]
		return append(append([]byte{byte(i)}, out[1:1+i]...), rest...)
	}
	return out[1+first:] // a label of 63 octets of 0xff: the successor is its parent's, as at the end of a zone
}

// dataDigest is the digest of the data of an answer set, as a key of the signature cache.
type dataDigest [16]byte

func computeDigest(parts ...[]byte) dataDigest {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte{byte(len(p) >> 8), byte(len(p))})
		h.Write(p)
	}
	return dataDigest(h.Sum(nil)[:16])
}
