package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// remarks are what an answer's OPT record says beside the answer. Both paths write it here and nowhere else.
type remarks struct {
	rcode   int  // whole: the upper bits stand in the OPT
	sound   bool // the query's options were understood
	signed  bool // the answer is from a signed zone, with what proves it
	scope   uint8
	ede     uint16 // an Extended DNS Error (RFC 8914), or noEDE
	cookie  cookie
	version bool // the zone's version is asked for and known
	labels  uint8
	serial  uint32
	nsid    string
	idle    uint16 // of a TCP connection, in 100 ms; 0 over UDP
	pad     int    // the whole answer's length becomes a multiple of this; 0: no padding
}

// Extended DNS Errors that we send (RFC 8914, 4). Code 0 means "other", which we never say.
const (
	noEDE     = 0
	edeStale  = 3
	edeForged = 4
	edeBusy   = 14 // "not ready": a signature cannot be made now
	edeType   = 30 // "invalid query type"
)

// optHead is an OPT record's length without options.
const optHead = 11

// codeZoneVersion is the ZONEVERSION option (RFC 9660).
const codeZoneVersion = 19

// append writes the OPT record that answers q's at the end of a message: only what was asked for and what we know.
func (r *remarks) append(b []byte, q *options) []byte {
	start := len(b)
	b = append(b, 0, 0, byte(dns.TypeOPT), ourSize>>8, ourSize&0xff, byte(r.rcode>>4), 0, 0, 0, 0, 0)
	if q.do {
		b[start+7] = 0x80
	}
	if q.co && r.signed {
		b[start+7] |= 0x40
	}
	if r.sound {
		b = r.options(b, q)
	}
	binary.BigEndian.PutUint16(b[start+9:], uint16(len(b)-start-optHead))
	return b
}

func (r *remarks) options(b []byte, q *options) []byte {
	if q.subnet.present {
		b = q.subnet.append(b, r.scope)
	}
	if r.cookie.server {
		b = r.cookie.append(b)
	}
	if r.ede != noEDE {
		b = append(b, 0, dns.EDNS0EDE, 0, 2, byte(r.ede>>8), byte(r.ede))
	}
	if q.nsid && r.nsid != "" {
		b = append(b, 0, dns.EDNS0NSID, byte(len(r.nsid)>>8), byte(len(r.nsid)))
		b = append(b, r.nsid...)
	}
	if r.version {
		b = append(b, 0, codeZoneVersion, 0, 6, r.labels, 0)
		b = binary.BigEndian.AppendUint32(b, r.serial)
	}
	if q.keepalive && r.idle != 0 {
		b = append(b, 0, dns.EDNS0TCPKEEPALIVE, 0, 2, byte(r.idle>>8), byte(r.idle))
	}
	if r.pad != 0 && q.padded {
		fill := (r.pad - (len(b)+4)%r.pad) % r.pad
		b = append(b, 0, dns.EDNS0PADDING, byte(fill>>8), byte(fill))
		b = append(b, make([]byte, fill)...)
	}
	return b
}
