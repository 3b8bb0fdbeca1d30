package dns

import (
	"encoding/binary"
	"strings"

	"github.com/miekg/dns"
)

// soaRecord is the zone's SOA record in wire format, for negative answers. Its names end in pointers to the zone's
// name, which ends every question in the zone. It is rebuilt when the zone changes.
type soaRecord struct {
	zone    *ZoneData
	nameLen int // length of the zone's name in wire format
	maxLen  int // upper bound of the record's size, uncompressed, as the library might encode it
	primary nameTail
	contact nameTail
	data    [20]byte // serial and timers
	ttl     uint32
}

// nameTail is a name in wire format, without the zone's part if it is in the zone.
type nameTail struct {
	labels []byte
	inZone bool
}

// prepareFor builds the record for another zone than the last one.
func (s *soaRecord) prepareFor(z *ZoneData) {
	if s.zone == z {
		return
	}
	rr := z.newSOA(z.Name, min(z.TTL, z.NegativeTTL))
	s.zone, s.ttl, s.nameLen = z, rr.Hdr.Ttl, len(wireName(z.Name))
	s.primary, s.contact = newNameTail(rr.Ns, z.Name), newNameTail(rr.Mbox, z.Name)
	for i, v := range []uint32{rr.Serial, rr.Refresh, rr.Retry, rr.Expire, rr.Minttl} {
		binary.BigEndian.PutUint32(s.data[4*i:], v)
	}
	s.maxLen = s.nameLen + len(wireName(rr.Ns)) + len(wireName(rr.Mbox)) + 10 + len(s.data)
	if s.primary.labels == nil || s.contact.labels == nil {
		s.maxLen = dns.MaxMsgSize // it fits into no message: the slow path reports that
	}
}

// appendTo appends the record as the authority section of an answer whose question's name ends before offset end.
func (s *soaRecord) appendTo(b []byte, end int) []byte {
	at := end + 1 - s.nameLen
	b = append(b, 0xc0|byte(at>>8), byte(at), 0, byte(dns.TypeSOA), 0, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, s.ttl)
	start := len(b)
	b = append(b, 0, 0)
	b = s.contact.appendTo(s.primary.appendTo(b, at), at)
	b = append(b, s.data[:]...)
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-2))
	b[9] = 1
	return b
}

func (t *nameTail) appendTo(b []byte, zone int) []byte {
	b = append(b, t.labels...)
	if t.inZone {
		b = append(b, 0xc0|byte(zone>>8), byte(zone))
	}
	return b
}

// newNameTail parses a name; its labels are nil if the name is invalid.
func newNameTail(name, zone string) nameTail {
	wire := wireName(name)
	if wire == nil || !strings.HasSuffix(name, "."+zone) {
		return nameTail{labels: wire}
	}
	return nameTail{labels: wire[:len(wire)-len(wireName(zone))], inZone: true}
}

// wireName returns a name in wire format, or nil if it is invalid.
func wireName(name string) []byte {
	b := make([]byte, maxName)
	n, err := dns.PackDomainName(name, b, 0, nil, false)
	if err != nil {
		return nil
	}
	return b[:n]
}
