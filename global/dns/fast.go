package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// fastPath answers nearly all queries over UDP: one question of class IN for an address or a service binding of a
// steered name, with at most one OPT record. It declines everything else, which then takes the slow path. Its answers
// equal those of the slow path, which a fuzz test checks. It allocates nothing and takes no lock. Each reader has its
// own.
type fastPath struct {
	handler    *handler
	name       [maxName]byte // of the question, in lower case, as Snapshot.LookupService requires it
	soa        soaRecord
	signedApex signedApex
	// queryOPT and answerOPT belong to the current message.
	queryOPT  queryOPT
	answerOPT answerOPT
}

func newFastPath(h *handler) fastPath {
	return fastPath{handler: h, answerOPT: answerOPT{understood: true}}
}

// maxName is the longest name in wire format, in octets (RFC 1035, 2.3.4).
const maxName = 255

// fastQuestion is the position and the content of a message's question.
type fastQuestion struct {
	nameLen   int // length of the name in fastPath.name
	endOffset int // offset after the question
	qtype     uint16
}

// fastOutcome is the outcome of a message on the fast path, in as few bytes as possible.
type fastOutcome struct {
	qtype     uint16
	rateLimit RateLimitResult
	stale     bool
	failed    bool // a panic, or a full slow path: the message is lost
}

// toEvent returns the QueryEvent for n messages.
func (o fastOutcome) toEvent(n int) QueryEvent {
	if o.failed {
		return QueryEvent{Count: n, Rcode: RcodeDropped, Service: -1}
	}
	return QueryEvent{Count: n, Qtype: o.qtype, Service: -1, FastPath: true, Stale: o.stale, RateLimit: o.rateLimit}
}

// answerQuery writes the answer to a message into dst, which has room for maxUDPSize, and returns false when it
// declines. With n = 0 no answer is sent.
func (f *fastPath) answerQuery(dst, msg []byte, from netip.Addr, now time.Time) (n int, out fastOutcome, ok bool) {
	q, ok := f.parseQuestion(msg)
	if !ok {
		return 0, out, false
	}
	o := &f.queryOPT
	*o = queryOPT{}
	if !readOPT(o, msg, q.endOffset) || o.nsid || o.zoneVersion {
		return 0, out, false
	}
	view := f.handler.snapshot()
	if view == nil {
		return 0, out, false
	}
	id, ok := view.LookupService(f.name[:q.nameLen])
	if !ok {
		return 0, out, false
	}
	from = from.Unmap()
	client, given := o.subnet.clientAddr()
	if !given {
		client = from
	}
	a := view.AnswerService(id, client)
	if !a.OK || a.Records == nil {
		return 0, out, false
	}
	r := &f.answerOPT
	zone := view.Zone()
	r.scope, r.ede, r.cookie.hasServer, r.signed = a.Scope, a.extendedError(), false, o.dnssecOK && zone.Signer != nil
	proven := false
	if o.cookie.hasClient {
		r.cookie, proven = o.cookie.checkCookie(f.handler.cookieSecrets(), from, now)
	}
	if r.signed {
		n, ok = f.writeSigned(dst, msg, &q, &a, zone, proven, now)
	} else {
		n, ok = f.writeAnswer(dst, msg, &q, &a, zone, proven)
	}
	out.qtype, out.stale = q.qtype, a.Stale
	if ok && !proven && f.handler.limiter != nil {
		var b []byte
		b, out.rateLimit = f.handler.limiter.limitAnswer(dst[:n], from, classifyAnswer(dns.RcodeSuccess, view.ServiceOf(id)), now)
		n = len(b)
	}
	return n, out, ok
}

// parseQuestion reads header and question, and declines unusual ones.
func (f *fastPath) parseQuestion(b []byte) (q fastQuestion, ok bool) {
	// Neither an answer nor another opcode than QUERY; one question, no record but one, which must be the OPT.
	if len(b) < headerLen+5 || b[2]&0xf8 != 0 || b[4] != 0 || b[5] != 1 || b[6]|b[7]|b[8]|b[9]|b[10] != 0 || b[11] > 1 {
		return q, false
	}
	off, n := headerLen, 0
	for b[off] != 0 {
		l := int(b[off])
		if l > 63 || off+l+6 > len(b) || n+l+2 > maxName {
			return q, false
		}
		for _, c := range b[off+1 : off+1+l] {
			if c = lowerOctets[c]; c == 0 {
				return q, false
			}
			f.name[n] = c
			n++
		}
		f.name[n] = '.'
		n++
		off += l + 1
	}
	if n == 0 || off+5 > len(b) || b[off+3] != 0 || b[off+4] != dns.ClassINET {
		return q, false
	}
	q = fastQuestion{nameLen: n, endOffset: off + 5, qtype: binary.BigEndian.Uint16(b[off+1:])}
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB:
		return q, true
	}
	return q, false
}

// lowerOctets maps the octets of plain names to lower case, and all others to 0.
var lowerOctets = func() (t [256]byte) {
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-_" {
		t[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		t[c] = byte(c) | 0x20
	}
	return t
}()

// readOPT reads what follows the question: nothing, or exactly one well-formed OPT record.
func readOPT(o *queryOPT, b []byte, off int) bool {
	if b[11] == 0 {
		return off == len(b)
	}
	b = b[off:]
	if len(b) < optHeadLen || b[0] != 0 || b[1] != 0 || b[2] != byte(dns.TypeOPT) {
		return false
	}
	if len(b) != optHeadLen+int(binary.BigEndian.Uint16(b[9:])) {
		return false
	}
	return o.parseOPT(binary.BigEndian.Uint16(b[3:]), binary.BigEndian.Uint32(b[5:]), b[optHeadLen:]) == faultNone
}

// plainOPTRoom is an upper bound of the size of the OPT record in the answer to a plain query: head, subnet, cookie
// and error.
const plainOPTRoom = optHeadLen + 4 + 4 + 16 + 4 + cookieLen + 6

// writeAnswer writes the answer. It declines answers that must be truncated.
func (f *fastPath) writeAnswer(dst, msg []byte, q *fastQuestion, a *ServiceAnswer, z *ZoneData, proven bool) (int, bool) {
	o, r := &f.queryOPT, &f.answerOPT
	limit := o.udpLimit()
	goal := limit
	if !proven {
		goal = min(limit, maxAmplification*len(msg))
	}
	b := dst[:copy(dst, msg[:q.endOffset])]
	b[2], b[3] = 0x84|msg[2]&0x01, msg[3]&0x10 // QR, AA, and RD and CD as in the query
	clear(b[6:headerLen])
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		all, size := a.Records.recordsOf(q.qtype)
		if len(all) == 0 {
			break
		}
		if q.endOffset+len(all)+plainOPTRoom > goal {
			opt := 0
			if o.present { // its length is known only after it is written
				opt = len(r.appendTo(b, o)) - len(b)
			}
			keep := computeKeepCount(len(all)/size, size, q.endOffset+len(all)+opt-goal)
			if q.endOffset+keep*size+opt > limit {
				return 0, false
			}
			b = appendRotated(b, all, size, keep, int(binary.BigEndian.Uint16(msg)), a.TTL)
		} else {
			b = appendWithTTL(b, all, size, a.TTL)
		}
	default:
		data := a.Records.serviceBinding
		if data == nil {
			break
		}
		if q.endOffset+recordHeadLen+len(data)+plainOPTRoom > limit {
			return 0, false
		}
		b = appendRecordHead(b, q.qtype, uint16(len(data)))
		binary.BigEndian.PutUint32(b[q.endOffset+6:], a.TTL)
		b[6], b[7] = 0, 1
		b = append(b, data...)
	}
	if b[6]|b[7] == 0 { // RFC 7871, 7.4: a negative answer holds for every client
		r.scope = 0
		if f.soa.prepareFor(z); q.endOffset+f.soa.maxLen+plainOPTRoom > limit {
			return 0, false
		}
		b = f.soa.appendTo(b, q.endOffset-5)
	}
	if o.present {
		b[11] = 1
		b = r.appendTo(b, o)
	}
	return len(b), true
}

// appendWithTTL appends all records with their TTL and counts them.
func appendWithTTL(b, all []byte, size int, ttl uint32) []byte {
	start := len(b)
	b = append(b, all...)
	for at := start + 6; at < len(b); at += size {
		binary.BigEndian.PutUint32(b[at:], ttl)
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(all)/size))
	return b
}

// appendRotated appends keep of the records. If those are not all, the first one depends on the query's id.
func appendRotated(b, all []byte, size, keep, id int, ttl uint32) []byte {
	n := len(all) / size
	if keep == n { // all fit, so there is nothing to distribute
		return appendWithTTL(b, all, size, ttl)
	}
	start := len(b)
	for i := range keep {
		at := (id + i) % n * size
		b = append(b, all[at:at+size]...)
	}
	for at := start + 6; at < len(b); at += size {
		binary.BigEndian.PutUint32(b[at:], ttl)
	}
	binary.BigEndian.PutUint16(b[6:], uint16(keep))
	return b
}
