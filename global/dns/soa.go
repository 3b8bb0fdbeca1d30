package dns

import (
	"encoding/binary"
	"strings"

	"github.com/miekg/dns"
)

// soa is the zone's SOA record in the form in which it goes with the answer that there is nothing. Its names end in
// pointers to the zone's name, which stands at the end of every question in the zone. It is made anew when the zone is.
type soa struct {
	zone    *Zone
	name    int // length of the zone's name in wire format
	longest int // what the record takes at most, uncompressed, as the library might write it
	primary tail
	contact tail
	data    [20]byte // serial and timers
	ttl     uint32
}

// tail is a name in wire format, without the zone's part where it is in the zone.
type tail struct {
	labels []byte
	inside bool
}

// prepare makes the record of another zone than the last one.
func (s *soa) prepare(z *Zone) {
	if s.zone == z {
		return
	}
	rr := z.soa(z.Name, min(z.TTL, z.Negative))
	s.zone, s.ttl, s.name = z, rr.Hdr.Ttl, len(wireName(z.Name))
	s.primary, s.contact = tailOf(rr.Ns, z.Name), tailOf(rr.Mbox, z.Name)
	for i, v := range []uint32{rr.Serial, rr.Refresh, rr.Retry, rr.Expire, rr.Minttl} {
		binary.BigEndian.PutUint32(s.data[4*i:], v)
	}
	s.longest = s.name + len(wireName(rr.Ns)) + len(wireName(rr.Mbox)) + 10 + len(s.data)
	if s.primary.labels == nil || s.contact.labels == nil {
		s.longest = dns.MaxMsgSize // no message can carry it: the library's path says so
	}
}

// append adds the record as the authority of an answer whose question's name ends before offset end.
func (s *soa) append(b []byte, end int) []byte {
	at := end + 1 - s.name
	b = append(b, 0xc0|byte(at>>8), byte(at), 0, byte(dns.TypeSOA), 0, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, s.ttl)
	start := len(b)
	b = append(b, 0, 0)
	b = s.contact.append(s.primary.append(b, at), at)
	b = append(b, s.data[:]...)
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-2))
	b[9] = 1
	return b
}

func (t *tail) append(b []byte, zone int) []byte {
	b = append(b, t.labels...)
	if t.inside {
		b = append(b, 0xc0|byte(zone>>8), byte(zone))
	}
	return b
}

// tailOf reads a name; its labels are nil when it is none.
func tailOf(name, zone string) tail {
	wire := wireName(name)
	if wire == nil || !strings.HasSuffix(name, "."+zone) {
		return tail{labels: wire}
	}
	return tail{labels: wire[:len(wire)-len(wireName(zone))], inside: true}
}

// wireName is a name in wire format, or nil for what is none.
func wireName(name string) []byte {
	b := make([]byte, maxName)
	n, err := dns.PackDomainName(name, b, 0, nil, false)
	if err != nil {
		return nil
	}
	return b[:n]
}

// Timers of the SOA, for secondaries that there are none of; testers want them within RFC 1912's bounds.
const (
	soaRefresh = 14_400
	soaRetry   = 3600
	soaExpire  = 1_209_600
)

// soa is the zone's SOA as the library writes it.
func (z *Zone) soa(owner string, ttl uint32) *dns.SOA {
	primary := z.Name
	if len(z.NS) > 0 {
		primary = z.NS[0].Name
	}
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  primary, Mbox: z.Contact, Serial: z.Serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: z.Negative,
	}
}
