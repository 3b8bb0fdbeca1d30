package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// ourSize is the UDP payload that we take and, at most, send: it crosses every path unfragmented.
const ourSize = 1232

// options is what a query's OPT record says (RFC 6891).
type options struct {
	present   bool
	size      int // UDP payload that the client takes, at least 512
	do        bool
	co        bool // compact denial may come with NXDOMAIN (RFC 9824, 5.1)
	nsid      bool
	keepalive bool
	padded    bool
	version   bool // asks for the zone's version
	subnet    subnet
	cookie    cookie
}

// read takes over an OPT record's fixed fields and its data.
func (o *options) read(class uint16, ttl uint32, data []byte) fault {
	o.present, o.size, o.do, o.co = true, max(int(class), dns.MinMsgSize), ttl&0x8000 != 0, ttl&0x4000 != 0
	if ttl>>16&0xff != 0 {
		return newer // what the options of another version mean is not ours to say
	}
	for len(data) > 0 {
		if len(data) < 4 {
			return garbled
		}
		code, length := binary.BigEndian.Uint16(data), int(binary.BigEndian.Uint16(data[2:]))
		if data = data[4:]; len(data) < length {
			return garbled
		}
		if !o.option(code, data[:length]) {
			return garbled
		}
		data = data[length:]
	}
	return sound
}

// option takes over one option and reports whether it is well formed. Options that we do not know are ignored.
func (o *options) option(code uint16, data []byte) bool {
	switch code {
	case dns.EDNS0SUBNET:
		if o.subnet.present {
			return false
		}
		return o.subnet.read(data)
	case dns.EDNS0COOKIE:
		return o.cookie.read(data)
	case dns.EDNS0NSID:
		o.nsid = true
		return len(data) == 0 // RFC 5001, 2.1
	case dns.EDNS0TCPKEEPALIVE:
		o.keepalive = true
		return len(data) == 0 // RFC 7828, 3.2.1
	case codeZoneVersion:
		o.version = true
		return len(data) == 0 // RFC 9660, 3.1
	case dns.EDNS0PADDING:
		o.padded = true
	}
	return true
}
