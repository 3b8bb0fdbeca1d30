package dns

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// parsedQuery is one received message. It is parsed here because the library accepts much that must be refused.
type parsedQuery struct {
	id       uint16
	opcode   int
	rd, cd   bool
	name     string // of the question, in its original spelling; empty if there is none
	qtype    uint16
	qclass   uint16
	queryOPT queryOPT
}

// queryFault is the defect of a message.
type queryFault uint8

const (
	faultNone        queryFault = iota
	faultSilent                 // not worth an answer, or dangerous to answer
	faultFormat                 // FORMERR
	faultEDNSVersion            // BADVERS: an EDNS version above ours
	faultOpcode                 // NOTIMP: an opcode that is not supported
	faultCookieOnly             // no question, but a cookie: FORMERR unless cookies are enabled
)

const headerLen = 12

// parseQuery parses a message. For a faulty message it returns the parts that it could read.
func parseQuery(b []byte) (parsedQuery, queryFault) {
	if len(b) < headerLen {
		return parsedQuery{}, faultSilent
	}
	flags := binary.BigEndian.Uint16(b[2:])
	if flags&0x8000 != 0 {
		return parsedQuery{}, faultSilent // two servers that answer each other's answers never stop
	}
	q := parsedQuery{id: binary.BigEndian.Uint16(b), opcode: int(flags >> 11 & 0xf), rd: flags&0x0100 != 0, cd: flags&0x0010 != 0}
	verdict := q.parseBody(b)
	if q.opcode != dns.OpcodeQuery {
		return q, faultOpcode // whose body may have another format
	}
	return q, verdict
}

// parseBody reads the question and finds the options.
func (q *parsedQuery) parseBody(b []byte) queryFault {
	off := headerLen
	for n := range int(binary.BigEndian.Uint16(b[4:])) {
		name, next, ok := readQuestionName(b, off)
		if !ok || next+4 > len(b) {
			return faultSilent
		}
		if n == 0 {
			q.name = name
			q.qtype, q.qclass = binary.BigEndian.Uint16(b[next:]), binary.BigEndian.Uint16(b[next+2:])
		}
		off = next + 4
	}
	records := [3]int{}
	for i := range records {
		records[i] = int(binary.BigEndian.Uint16(b[6+2*i:]))
	}
	verdict := q.parseRecords(b, off, records)
	if questions := binary.BigEndian.Uint16(b[4:]); verdict == faultNone && questions != 1 {
		if questions == 0 && q.queryOPT.cookie.hasClient {
			return faultCookieOnly
		}
		return faultFormat // RFC 9619
	}
	return verdict
}

// parseRecords walks the three record sections: only an OPT in the last one matters, but all must be well formed and
// no bytes may follow.
func (q *parsedQuery) parseRecords(b []byte, off int, counts [3]int) queryFault {
	verdict := faultNone
	for section, n := range counts {
		for range n {
			r, next, ok := readRecord(b, off)
			if !ok {
				return faultFormat
			}
			off = next
			if r.rtype != dns.TypeOPT || verdict == faultFormat {
				continue
			}
			if section != 2 || !r.ownerIsRoot || q.queryOPT.present {
				verdict = faultFormat // RFC 6891, 6.1.1
				continue
			}
			verdict = q.queryOPT.parseOPT(r.class, r.ttl, r.data)
		}
	}
	if off != len(b) {
		return faultFormat
	}
	return verdict
}

// rawRecord is a resource record within a message.
type rawRecord struct {
	ownerIsRoot bool // the owner is the root
	rtype       uint16
	class       uint16
	ttl         uint32
	data        []byte
}

// readRecord reads the record at off and returns the offset after it.
func readRecord(b []byte, off int) (rawRecord, int, bool) {
	start := off
	off = skipName(b, off)
	if off < 0 || off+10 > len(b) {
		return rawRecord{}, 0, false
	}
	end := off + 10 + int(binary.BigEndian.Uint16(b[off+8:]))
	if end > len(b) {
		return rawRecord{}, 0, false
	}
	return rawRecord{
		ownerIsRoot: b[start] == 0,
		rtype:       binary.BigEndian.Uint16(b[off:]),
		class:       binary.BigEndian.Uint16(b[off+2:]),
		ttl:         binary.BigEndian.Uint32(b[off+4:]),
		data:        b[off+10 : end],
	}, end, true
}

// readQuestionName reads a name that must be uncompressed: no name before the question could be referenced.
func readQuestionName(b []byte, off int) (string, int, bool) {
	for i := off; ; {
		if i >= len(b) || b[i]&0xc0 != 0 {
			return "", 0, false
		}
		if b[i] == 0 {
			break
		}
		i += int(b[i]) + 1
	}
	name, next, err := dns.UnpackDomainName(b, off)
	return name, next, err == nil
}

// skipName returns the offset after a name, or -1.
func skipName(b []byte, off int) int {
	for off < len(b) {
		switch c := int(b[off]); {
		case c == 0:
			return off + 1
		case c&0xc0 == 0xc0:
			if off+2 > len(b) {
				return -1
			}
			return off + 2
		case c&0xc0 != 0:
			return -1
		default:
			off += c + 1
		}
	}
	return -1
}

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
