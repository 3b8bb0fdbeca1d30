package dns

import (
	"encoding/binary"
	"time"

	"github.com/miekg/dns"
)

// seal is what of a signed zone the fast path needs beside the SOA. It is made anew when the zone is.
type seal struct {
	zone *Zone
	soa  digest
	apex []byte // the zone's name as text
}

func (s *seal) prepare(z *Zone) bool {
	if s.zone == z {
		return s.apex != nil
	}
	*s = seal{zone: z}
	if data, err := dataOf(z.soa(z.Name, z.TTL)); err == nil {
		s.soa, s.apex = digestOf(data), []byte(z.Name)
	}
	return s.apex != nil
}

// prove is write for those who ask for signatures. It takes signatures that were made before and declines the rest: the
// library's path makes them.
func (f *fast) prove(dst, msg []byte, q *question, a *Answer, z *Zone, proven bool, now time.Time) (int, bool) {
	o, s := &f.options, z.Signer
	b := dst[:copy(dst, msg[:q.end])]
	b[2], b[3] = 0x84|msg[2]&0x01, msg[3]&0x10
	clear(b[6:headerLen])
	t := answerSet{owner: f.name[:q.text], rtype: q.qtype, ttl: max(a.TTL, a.Full)}
	ok := false
	switch all, size := a.Ready.of(q.qtype); {
	case kindOf(q.qtype)&(KindA|KindAAAA) != 0 && len(all) > 0:
		goal := o.limit()
		if !proven {
			goal = min(goal, maxGain*len(msg))
		}
		opt := len(f.remarks.append(b, o)) - len(b)
		n := len(all) / size
		first, keep := portion(n, size, int(binary.BigEndian.Uint16(msg)), goal-q.end-opt, o.limit()-q.end-opt-s.sizeRRSIG())
		if q.end+keep*size+s.sizeRRSIG()+opt > o.limit() {
			return 0, false
		}
		t.digest, t.first, t.keep = a.Ready.digest(q.qtype), uint16(first), uint16(keep)
		b = appendSome(b, all, size, keep, first, a.TTL)
		b, ok = appendSignature(b, headerLen, a.TTL, s.find(&t, now.Unix()))
		b[7]++
	case kindOf(q.qtype)&(KindHTTPS|KindSVCB) != 0 && a.Ready.binding != nil:
		if q.end+sizeHead+len(a.Ready.binding)+s.sizeRRSIG()+optRoom > o.limit() {
			return 0, false
		}
		t.digest = a.Ready.digestB
		b = appendHead(b, q.qtype, uint16(len(a.Ready.binding)))
		binary.BigEndian.PutUint32(b[q.end+6:], a.TTL)
		b = append(b, a.Ready.binding...)
		b, ok = appendSignature(b, headerLen, a.TTL, s.find(&t, now.Unix()))
		b[7] = 2
	default:
		f.remarks.scope = 0 // RFC 7871, 7.4
		b, ok = f.deny(b, q, a, z, now.Unix())
	}
	if !ok {
		return 0, false
	}
	b[11] = 1
	return len(f.remarks.append(b, o)), true
}

// deny appends SOA and NSEC with their signatures. The apex has types that the view does not know of: it declines that.
func (f *fast) deny(b []byte, q *question, a *Answer, z *Zone, now int64) ([]byte, bool) {
	s, name := z.Signer, q.end-4-headerLen
	if f.soa.prepare(z); !f.seal.prepare(z) || q.text == len(f.seal.apex) || name+2 > maxName {
		return b, false
	}
	list := &kindLists[a.denied(q.qtype)]
	if q.end+f.soa.longest+f.soa.name+2*s.sizeRRSIG()+sizeHead+2+name+len(list.bits)+optRoom > f.options.limit() {
		return b, false
	}
	apex := q.end - 4 - f.soa.name
	b = f.soa.append(b, q.end-5)
	t := answerSet{owner: f.seal.apex, rtype: dns.TypeSOA, ttl: z.TTL, digest: f.seal.soa}
	b, ok := appendSignature(b, apex, f.soa.ttl, s.find(&t, now))
	if !ok {
		return b, false
	}
	at := len(b)
	b = appendHead(b, dns.TypeNSEC, uint16(2+name+len(list.bits)))
	binary.BigEndian.PutUint32(b[at+6:], f.soa.ttl)
	b = append(b, 1, 0)
	for _, c := range b[headerLen : headerLen+name] {
		if c > 63 { // lengths of labels stay as they are
			c = lower[c]
		}
		b = append(b, c)
	}
	b = append(b, list.bits...)
	t = answerSet{owner: f.name[:q.text], rtype: dns.TypeNSEC, ttl: f.soa.ttl, digest: list.digest}
	b, ok = appendSignature(b, headerLen, f.soa.ttl, s.find(&t, now))
	b[9] = 4
	return b, ok
}

// appendSignature appends an RRSIG record whose owner stands at an offset; it reports false where there is none.
func appendSignature(b []byte, owner int, ttl uint32, data []byte) ([]byte, bool) {
	b = append(b, 0xc0|byte(owner>>8), byte(owner), 0, byte(dns.TypeRRSIG), 0, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...), data != nil
}
