package dns

import (
	"crypto/sha256"
	"slices"

	"github.com/miekg/dns"
)

// Denial is compact (RFC 9824): the one NSEC record of an answer stands at the name that was asked for and reaches no
// further than to the name right behind it, so it says of that name alone which types there are. Of a name that does not
// exist it says so by the type NXNAME.

// Kinds are the types of record that a steered name may be answered with, whoever asks.
type Kinds uint8

// The kinds.
const (
	KindA Kinds = 1 << iota
	KindAAAA
	KindHTTPS
	KindSVCB
	allKinds = KindA | KindAAAA | KindHTTPS | KindSVCB
)

var kindTypes = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB}

// kindOf is the kind of a type, or 0.
func kindOf(rtype uint16) Kinds {
	for i, t := range kindTypes {
		if t == rtype {
			return 1 << i
		}
	}
	return 0
}

// types adds the types of the kinds to a list.
func (k Kinds) types(list []uint16) []uint16 {
	for i, t := range kindTypes {
		if k&(1<<i) != 0 {
			list = append(list, t)
		}
	}
	return list
}

// Kinds are the types that the set is answered with.
func (r *Records) Kinds() (k Kinds) {
	if r == nil {
		return 0
	}
	if len(r.v4) > 0 {
		k |= KindA
	}
	if len(r.v6) > 0 {
		k |= KindAAAA
	}
	if r.binding != nil {
		k |= KindHTTPS | KindSVCB
	}
	return k
}

// denied are the kinds that stay when a type was asked for and is not there.
func (a *Answer) denied(qtype uint16) Kinds { return (a.Kinds | a.Ready.Kinds()) &^ kindOf(qtype) }

// bitmap is the list of types of an NSEC record (RFC 4034, 4.1.2), RRSIG and NSEC themselves included.
func bitmap(types ...uint16) []byte {
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

// typeList is a bitmap with the digest by which its signatures are found.
type typeList struct {
	bits   []byte
	digest digest
}

func newTypeList(types ...uint16) typeList {
	b := bitmap(types...)
	return typeList{b, digestOf(b)}
}

// kindLists are those of all steered names that are nothing else, and absentList that of names that do not exist.
var (
	kindLists = func() (out [allKinds + 1]typeList) {
		for k := range out {
			out[k] = newTypeList(Kinds(k).types(nil)...)
		}
		return out
	}()
	absentList = newTypeList(dns.TypeNXNAME)
)

// nsec is the data of the NSEC record at a name, in wire format and lower case.
func nsec(name []byte, list typeList) []byte { return append(successor(name), list.bits...) }

// successor is the name right behind another in the order of DNSSEC (RFC 4034, 6.1): the first one below it or, where the
// name is too long for that, the next at its level (RFC 4471, 3.1.2).
func successor(name []byte) []byte {
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
			continue // no octet is behind it: the one before it moves on, and it goes
		case c == 'A'-1:
			out[i] = 'Z' + 1 // capitals are in the place of small letters
		default:
			out[i]++
		}
		rest := out[1+first:]
		return append(append([]byte{byte(i)}, out[1:1+i]...), rest...)
	}
	return out[1+first:] // a label of 63 octets of 0xff: the next name is its parent, as at the end of a zone
}

// digest stands for the data of an answer set, for signatures to be found by.
type digest [16]byte

func digestOf(parts ...[]byte) digest {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte{byte(len(p) >> 8), byte(len(p))})
		h.Write(p)
	}
	return digest(h.Sum(nil)[:16])
}
