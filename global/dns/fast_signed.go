package dns

import (
	"encoding/binary"
	"time"

	"github.com/miekg/dns"
)

// signedApex is the data of a signed zone that the fast path needs besides the SOA. It is rebuilt when the zone
// changes.
type signedApex struct {
	zone      *ZoneData
	soaDigest dataDigest
	apex      []byte // the zone's name as text
}

func (s *signedApex) prepareFor(z *ZoneData) bool {
	if s.zone == z {
		return s.apex != nil
	}
	*s = signedApex{zone: z}
	if data, err := packData(z.newSOA(z.Name, z.TTL)); err == nil {
		s.soaDigest, s.apex = computeDigest(data), []byte(z.Name)
	}
	return s.apex != nil
}

// writeSigned is writeAnswer for queries with DO. It uses cached signatures and declines the rest: the slow path
// makes them.
func (f *fastPath) writeSigned(dst, msg []byte, q *fastQuestion, a *ServiceAnswer, z *ZoneData, proven bool, now time.Time) (int, bool) {
	o, s := &f.queryOPT, z.Signer
	b := dst[:copy(dst, msg[:q.endOffset])]
	b[2], b[3] = 0x84|msg[2]&0x01, msg[3]&0x10
	clear(b[6:headerLen])
	t := answerSet{owner: f.name[:q.nameLen], rtype: q.qtype, ttl: max(a.TTL, a.FullTTL)}
	ok := false
	switch all, size := a.Records.recordsOf(q.qtype); {
	case kindOfType(q.qtype)&(KindA|KindAAAA) != 0 && len(all) > 0:
		goal := o.udpLimit()
		if !proven {
			goal = min(goal, maxAmplification*len(msg))
		}
		opt := len(f.answerOPT.appendTo(b, o)) - len(b)
		n := len(all) / size
		first, keep := choosePortion(n, size, int(binary.BigEndian.Uint16(msg)), goal-q.endOffset-opt, o.udpLimit()-q.endOffset-opt-s.rrsigLen())
		if q.endOffset+keep*size+s.rrsigLen()+opt > o.udpLimit() {
			return 0, false
		}
		t.digest, t.firstAddr, t.keepAddrs = a.Records.digestFor(q.qtype), uint16(first), uint16(keep)
		b = appendRotated(b, all, size, keep, first, a.TTL)
		b, ok = appendSignature(b, headerLen, a.TTL, s.findSignature(&t, now.Unix()))
		b[7]++
	case kindOfType(q.qtype)&(KindHTTPS|KindSVCB) != 0 && a.Records.serviceBinding != nil:
		if q.endOffset+recordHeadLen+len(a.Records.serviceBinding)+s.rrsigLen()+plainOPTRoom > o.udpLimit() {
			return 0, false
		}
		t.digest = a.Records.digestBinding
		b = appendRecordHead(b, q.qtype, uint16(len(a.Records.serviceBinding)))
		binary.BigEndian.PutUint32(b[q.endOffset+6:], a.TTL)
		b = append(b, a.Records.serviceBinding...)
		b, ok = appendSignature(b, headerLen, a.TTL, s.findSignature(&t, now.Unix()))
		b[7] = 2
	default:
		f.answerOPT.scope = 0 // RFC 7871, 7.4
		b, ok = f.appendDenial(b, q, a, z, now.Unix())
	}
	if !ok {
		return 0, false
	}
	b[11] = 1
	return len(f.answerOPT.appendTo(b, o)), true
}

// appendDenial appends SOA and NSEC with their signatures. It declines the apex, which has types that the snapshot
// does not list.
func (f *fastPath) appendDenial(b []byte, q *fastQuestion, a *ServiceAnswer, z *ZoneData, now int64) ([]byte, bool) {
	s, name := z.Signer, q.endOffset-4-headerLen
	if f.soa.prepareFor(z); !f.signedApex.prepareFor(z) || q.nameLen == len(f.signedApex.apex) || name+2 > maxName {
		return b, false
	}
	list := &kindLists[a.remainingKinds(q.qtype)]
	if q.endOffset+f.soa.maxLen+f.soa.nameLen+2*s.rrsigLen()+recordHeadLen+2+name+len(list.bits)+plainOPTRoom > f.queryOPT.udpLimit() {
		return b, false
	}
	apex := q.endOffset - 4 - f.soa.nameLen
	b = f.soa.appendTo(b, q.endOffset-5)
	t := answerSet{owner: f.signedApex.apex, rtype: dns.TypeSOA, ttl: z.TTL, digest: f.signedApex.soaDigest}
	b, ok := appendSignature(b, apex, f.soa.ttl, s.findSignature(&t, now))
	if !ok {
		return b, false
	}
	at := len(b)
	b = appendRecordHead(b, dns.TypeNSEC, uint16(2+name+len(list.bits)))
	binary.BigEndian.PutUint32(b[at+6:], f.soa.ttl)
	b = append(b, 1, 0)
	for _, c := range b[headerLen : headerLen+name] {
		if c > 63 { // lengths of labels stay unchanged
			c = lowerOctets[c]
		}
		b = append(b, c)
	}
	b = append(b, list.bits...)
	t = answerSet{owner: f.name[:q.nameLen], rtype: dns.TypeNSEC, ttl: f.soa.ttl, digest: list.digest}
	b, ok = appendSignature(b, headerLen, f.soa.ttl, s.findSignature(&t, now))
	b[9] = 4
	return b, ok
}

// appendSignature appends an RRSIG record whose owner is at an offset; it returns false if there is no signature.
func appendSignature(b []byte, owner int, ttl uint32, data []byte) ([]byte, bool) {
	b = append(b, 0xc0|byte(owner>>8), byte(owner), 0, byte(dns.TypeRRSIG), 0, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...), data != nil
}
