package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// fast answers what nearly every query is, over UDP: one question of class IN for an address or a service binding of a
// name that is steered, with at most one OPT record. It declines everything else, and then the library's path answers.
// What it does answer, that path would answer alike, which a fuzz test holds. It allocates nothing and takes no lock.
// Each reader has its own.
type fast struct {
	h    *handler
	name [maxName]byte // of the question, in lower case, as View.Lookup wants it
	soa  soa
	seal seal
	// options and remarks are of the message at hand.
	options options
	remarks remarks
}

func newFast(h *handler) fast { return fast{h: h, remarks: remarks{sound: true}} }

// maxName is the longest name in wire format, in octets (RFC 1035, 2.3.4).
const maxName = 255

// question is where a message's question stands and what it asks.
type question struct {
	text  int // length of the name in fast.name
	end   int // offset behind the question
	qtype uint16
}

// outcome is what became of a message on the fast path, as small as it can be told.
type outcome struct {
	qtype   uint16
	limited Limited
	stale   bool
	failed  bool // a panic, or no room in the slow path: it is lost
}

// event is what the observer is told of n messages.
func (o outcome) event(n int) Event {
	if o.failed {
		return Event{N: n, Rcode: Dropped, Service: -1}
	}
	return Event{N: n, Qtype: o.qtype, Service: -1, Fast: true, Stale: o.stale, Limited: o.limited}
}

// answer writes the answer to a message into dst, which has room for ourSize, and reports false when it declines. An
// answer of no bytes is one that is not to be sent.
func (f *fast) answer(dst, msg []byte, from netip.Addr, now time.Time) (n int, out outcome, ok bool) {
	q, ok := f.question(msg)
	if !ok {
		return 0, out, false
	}
	o := &f.options
	*o = options{}
	if !readOPT(o, msg, q.end) || o.nsid || o.version {
		return 0, out, false
	}
	view := f.h.view()
	if view == nil {
		return 0, out, false
	}
	id, ok := view.Lookup(f.name[:q.text])
	if !ok {
		return 0, out, false
	}
	from = from.Unmap()
	client, given := o.subnet.client()
	if !given {
		client = from
	}
	a := view.Answer(id, client)
	if !a.OK || a.Ready == nil {
		return 0, out, false
	}
	r := &f.remarks
	zone := view.Zone()
	r.scope, r.ede, r.cookie.server, r.signed = a.Scope, a.ede(), false, o.do && zone.Signer != nil
	proven := false
	if o.cookie.client {
		r.cookie, proven = o.cookie.check(f.h.cookieSecrets(), from, now)
	}
	if r.signed {
		n, ok = f.prove(dst, msg, &q, &a, zone, proven, now)
	} else {
		n, ok = f.write(dst, msg, &q, &a, zone, proven)
	}
	out.qtype, out.stale = q.qtype, a.Stale
	if ok && !proven && f.h.limiter != nil {
		var b []byte
		b, out.limited = f.h.limiter.apply(dst[:n], from, classOf(dns.RcodeSuccess, view.ServiceOf(id)), now)
		n = len(b)
	}
	return n, out, ok
}

// question reads header and question, and declines what is not plain.
func (f *fast) question(b []byte) (q question, ok bool) {
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
			if c = lower[c]; c == 0 {
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
	q = question{text: n, end: off + 5, qtype: binary.BigEndian.Uint16(b[off+1:])}
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB:
		return q, true
	}
	return q, false
}

// lower turns the octets of plain names into lower case, and all others into 0.
var lower = func() (t [256]byte) {
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-_" {
		t[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		t[c] = byte(c) | 0x20
	}
	return t
}()

// readOPT reads what follows the question: nothing, or one well-formed OPT record and nothing behind it.
func readOPT(o *options, b []byte, off int) bool {
	if b[11] == 0 {
		return off == len(b)
	}
	b = b[off:]
	if len(b) < optHead || b[0] != 0 || b[1] != 0 || b[2] != byte(dns.TypeOPT) {
		return false
	}
	if len(b) != optHead+int(binary.BigEndian.Uint16(b[9:])) {
		return false
	}
	return o.read(binary.BigEndian.Uint16(b[3:]), binary.BigEndian.Uint32(b[5:]), b[optHead:]) == sound
}

// optRoom is more than the OPT record takes that answers a plain query: head, subnet, cookie and error.
const optRoom = optHead + 4 + 4 + 16 + 4 + cookieLen + 6

// write makes the answer. It declines what has to be truncated.
func (f *fast) write(dst, msg []byte, q *question, a *Answer, z *Zone, proven bool) (int, bool) {
	o, r := &f.options, &f.remarks
	limit := o.limit()
	goal := limit
	if !proven {
		goal = min(limit, maxGain*len(msg))
	}
	b := dst[:copy(dst, msg[:q.end])]
	b[2], b[3] = 0x84|msg[2]&0x01, msg[3]&0x10 // QR, AA, and RD and CD as they were asked
	clear(b[6:headerLen])
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		all, size := a.Ready.of(q.qtype)
		if len(all) == 0 {
			break
		}
		if q.end+len(all)+optRoom > goal {
			opt := 0
			if o.present { // its length is not known before it is written
				opt = len(r.append(b, o)) - len(b)
			}
			keep := spare(len(all)/size, size, q.end+len(all)+opt-goal)
			if q.end+keep*size+opt > limit {
				return 0, false
			}
			b = appendSome(b, all, size, keep, int(binary.BigEndian.Uint16(msg)), a.TTL)
		} else {
			b = appendTimed(b, all, size, a.TTL)
		}
	default:
		data := a.Ready.binding
		if data == nil {
			break
		}
		if q.end+sizeHead+len(data)+optRoom > limit {
			return 0, false
		}
		b = appendHead(b, q.qtype, uint16(len(data)))
		binary.BigEndian.PutUint32(b[q.end+6:], a.TTL)
		b[6], b[7] = 0, 1
		b = append(b, data...)
	}
	if b[6]|b[7] == 0 { // RFC 7871, 7.4: what is not there is not there for anybody
		r.scope = 0
		if f.soa.prepare(z); q.end+f.soa.longest+optRoom > limit {
			return 0, false
		}
		b = f.soa.append(b, q.end-5)
	}
	if o.present {
		b[11] = 1
		b = r.append(b, o)
	}
	return len(b), true
}

// appendTimed appends all records with their TTL and counts them.
func appendTimed(b, all []byte, size int, ttl uint32) []byte {
	start := len(b)
	b = append(b, all...)
	for at := start + 6; at < len(b); at += size {
		binary.BigEndian.PutUint32(b[at:], ttl)
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(all)/size))
	return b
}

// appendSome appends keep of the records. Where those are not all, they begin with one that turns with the query's id.
func appendSome(b, all []byte, size, keep, id int, ttl uint32) []byte {
	n := len(all) / size
	if keep == n { // there is room for all after all, and nothing to be fair about
		return appendTimed(b, all, size, ttl)
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
