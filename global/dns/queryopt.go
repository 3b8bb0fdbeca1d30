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
