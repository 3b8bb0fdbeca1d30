package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// maxUDPSize is the UDP payload that we advertise and the largest that we send: it passes every path unfragmented.
const maxUDPSize = 1232

// queryOPT is the content of a query's OPT record (RFC 6891).
type queryOPT struct {
	present     bool
	udpSize     int // UDP payload that the client accepts, at least 512
	dnssecOK    bool
	compactOK   bool // NXDOMAIN may be used with compact denial (RFC 9824, 5.1)
	nsid        bool
	keepalive   bool
	padded      bool
	zoneVersion bool // asks for the zone's version
	subnet      clientSubnet
	cookie      cookie
}

// parseOPT reads an OPT record's fixed fields and its data.
func (o *queryOPT) parseOPT(class uint16, ttl uint32, data []byte) queryFault {
	o.present, o.udpSize, o.dnssecOK, o.compactOK = true, max(int(class), dns.MinMsgSize), ttl&0x8000 != 0, ttl&0x4000 != 0
	if ttl>>16&0xff != 0 {
		return faultEDNSVersion // the options of another version are undefined here
	}
	for len(data) > 0 {
		if len(data) < 4 {
			return faultFormat
		}
		code, length := binary.BigEndian.Uint16(data), int(binary.BigEndian.Uint16(data[2:]))
		if data = data[4:]; len(data) < length {
			return faultFormat
		}
		if !o.parseOption(code, data[:length]) {
			return faultFormat
		}
		data = data[length:]
	}
	return faultNone
}

// parseOption reads one option and reports whether it is well formed. Unknown options are ignored.
func (o *queryOPT) parseOption(code uint16, data []byte) bool {
	switch code {
	case dns.EDNS0SUBNET:
		if o.subnet.present {
			return false
		}
		return o.subnet.parseOption(data)
	case dns.EDNS0COOKIE:
		return o.cookie.parseOption(data)
	case dns.EDNS0NSID:
		o.nsid = true
		return len(data) == 0 // RFC 5001, 2.1
	case dns.EDNS0TCPKEEPALIVE:
		o.keepalive = true
		return len(data) == 0 // RFC 7828, 3.2.1
	case codeZoneVersion:
		o.zoneVersion = true
		return len(data) == 0 // RFC 9660, 3.1
	case dns.EDNS0PADDING:
		o.padded = true
	}
	return true
}

// answerOPT is the content of an answer's OPT record. Both paths encode it only here.
type answerOPT struct {
	rcode          int  // complete: the upper bits go into the OPT
	understood     bool // the query's options were understood
	signed         bool // the answer is from a signed zone, with its signatures
	scope          uint8
	ede            uint16 // an Extended DNS Error (RFC 8914), or noEDE
	cookie         cookie
	hasZoneVersion bool // the zone's version is requested and known
	labels         uint8
	serial         uint32
	nsid           string
	tcpIdle        uint16 // of a TCP connection, in 100 ms; 0 over UDP
	padBlock       int    // the answer is padded to a multiple of this length; 0: no padding
}

// Extended DNS Errors of this server (RFC 8914, 4). Code 0 means "other" and is not used.
const (
	noEDE     = 0
	edeStale  = 3
	edeForged = 4
	edeBusy   = 14 // "not ready": a signature cannot be made now
	edeType   = 30 // "invalid query type"
)

// optHeadLen is an OPT record's length without options.
const optHeadLen = 11

// codeZoneVersion is the ZONEVERSION option (RFC 9660).
const codeZoneVersion = 19

// appendTo appends the OPT record of the answer to q to a message. It contains only requested options with known
// values.
func (r *answerOPT) appendTo(b []byte, q *queryOPT) []byte {
	start := len(b)
	b = append(b, 0, 0, byte(dns.TypeOPT), maxUDPSize>>8, maxUDPSize&0xff, byte(r.rcode>>4), 0, 0, 0, 0, 0)
	if q.dnssecOK {
		b[start+7] = 0x80
	}
	if q.compactOK && r.signed {
		b[start+7] |= 0x40
	}
	if r.understood {
		b = r.appendOptions(b, q)
	}
	binary.BigEndian.PutUint16(b[start+9:], uint16(len(b)-start-optHeadLen))
	return b
}

func (r *answerOPT) appendOptions(b []byte, q *queryOPT) []byte {
	if q.subnet.present {
		b = q.subnet.appendOption(b, r.scope)
	}
	if r.cookie.hasServer {
		b = r.cookie.appendOption(b)
	}
	if r.ede != noEDE {
		b = append(b, 0, dns.EDNS0EDE, 0, 2, byte(r.ede>>8), byte(r.ede))
	}
	if q.nsid && r.nsid != "" {
		b = append(b, 0, dns.EDNS0NSID, byte(len(r.nsid)>>8), byte(len(r.nsid)))
		b = append(b, r.nsid...)
	}
	if r.hasZoneVersion {
		b = append(b, 0, codeZoneVersion, 0, 6, r.labels, 0)
		b = binary.BigEndian.AppendUint32(b, r.serial)
	}
	if q.keepalive && r.tcpIdle != 0 {
		b = append(b, 0, dns.EDNS0TCPKEEPALIVE, 0, 2, byte(r.tcpIdle>>8), byte(r.tcpIdle))
	}
	if r.padBlock != 0 && q.padded {
		fill := (r.padBlock - (len(b)+4)%r.padBlock) % r.padBlock
		b = append(b, 0, dns.EDNS0PADDING, byte(fill>>8), byte(fill))
		b = append(b, make([]byte, fill)...)
	}
	return b
}
