package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// query is one message as it was received, read from its bytes: the library would accept much that must be refused.
type query struct {
	id      uint16
	opcode  int
	rd, cd  bool
	name    string // of the question, as it was written; empty where there is none
	qtype   uint16
	qclass  uint16
	options options
}

// fault is what is wrong with a message.
type fault uint8

const (
	sound      fault = iota
	mute             // not worth an answer, or dangerous to answer
	garbled          // FORMERR
	newer            // BADVERS: an EDNS version above ours
	foreign          // NOTIMP: an opcode that we do not serve
	asksCookie       // no question, but a cookie: FORMERR unless there are cookies to be had
)

const headerLen = 12

// parse reads a message. It returns what it could read also when the message is faulty.
func parse(b []byte) (query, fault) {
	if len(b) < headerLen {
		return query{}, mute
	}
	flags := binary.BigEndian.Uint16(b[2:])
	if flags&0x8000 != 0 {
		return query{}, mute // two servers that answer each other's answers never stop
	}
	q := query{id: binary.BigEndian.Uint16(b), opcode: int(flags >> 11 & 0xf), rd: flags&0x0100 != 0, cd: flags&0x0010 != 0}
	verdict := q.body(b)
	if q.opcode != dns.OpcodeQuery {
		return q, foreign // whose body we may have misread
	}
	return q, verdict
}

// body reads the question and finds the options.
func (q *query) body(b []byte) fault {
	off := headerLen
	for n := range int(binary.BigEndian.Uint16(b[4:])) {
		name, next, ok := questionName(b, off)
		if !ok || next+4 > len(b) {
			return mute
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
	verdict := q.records(b, off, records)
	if questions := binary.BigEndian.Uint16(b[4:]); verdict == sound && questions != 1 {
		if questions == 0 && q.options.cookie.client {
			return asksCookie
		}
		return garbled // RFC 9619
	}
	return verdict
}

// records walks the three sections of records: only an OPT in the last one matters, but all must be well formed and
// nothing may follow.
func (q *query) records(b []byte, off int, counts [3]int) fault {
	verdict := sound
	for section, n := range counts {
		for range n {
			r, next, ok := readRecord(b, off)
			if !ok {
				return garbled
			}
			off = next
			if r.rtype != dns.TypeOPT || verdict == garbled {
				continue
			}
			if section != 2 || !r.root || q.options.present {
				verdict = garbled // RFC 6891, 6.1.1
				continue
			}
			verdict = q.options.read(r.class, r.ttl, r.data)
		}
	}
	if off != len(b) {
		return garbled
	}
	return verdict
}

// rawRecord is a resource record as it stands in a message.
type rawRecord struct {
	root  bool // the owner is the root
	rtype uint16
	class uint16
	ttl   uint32
	data  []byte
}

// readRecord reads the record at off and returns the offset behind it.
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
		root:  b[start] == 0,
		rtype: binary.BigEndian.Uint16(b[off:]),
		class: binary.BigEndian.Uint16(b[off+2:]),
		ttl:   binary.BigEndian.Uint32(b[off+4:]),
		data:  b[off+10 : end],
	}, end, true
}

// questionName reads a name that must stand uncompressed: before a question there is nothing to point to.
func questionName(b []byte, off int) (string, int, bool) {
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

// skipName returns the offset behind a name, or -1.
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
