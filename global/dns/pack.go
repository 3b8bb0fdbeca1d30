package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// maxGain is how many times its query an answer over UDP should be at most. Whoever sends queries in a victim's name
// gains that much: at 3 he does better with an ordinary echo of somebody else's, as QUIC reckons too (RFC 9000, 8).
const maxGain = 3

// maxDebug bounds TXT over UDP, in bytes. Only people ask for explanations, and their tools ask again over TCP at no
// cost, where nobody speaks in another's name. 512 is what every client of DNS was always sent; with less, a short
// explanation would need a second round trip, and an attacker finds more elsewhere.
const maxDebug = dns.MinMsgSize

// pack writes the answer, cut down to what the client takes and to what may be sent to one that has proven nothing.
func (x *exchange) pack(dst []byte) ([]byte, error) {
	m := x.reply
	m.Compress = true
	m.Rcode, x.remarks.rcode = m.Rcode&0xf, m.Rcode
	defer func() { m.Rcode = x.remarks.rcode }()
	var opt []byte
	if x.q.options.present {
		opt = x.remarks.append(nil, &x.q.options)
	}
	out, err := m.PackBuffer(dst)
	if err == nil && len(out)+len(opt) > x.goal() {
		out, err = x.shrink(dst, out, len(opt))
	}
	if err != nil || opt == nil {
		return out, err
	}
	if x.remarks.pad > 0 && x.q.options.padded {
		opt = nil // the padding counts from the whole message's length
		out = x.remarks.append(out, &x.q.options)
	}
	binary.BigEndian.PutUint16(out[10:], binary.BigEndian.Uint16(out[10:])+1)
	return append(out, opt...), nil
}

// shrink leaves out what can be spared, and at last everything.
func (x *exchange) shrink(dst, out []byte, opt int) ([]byte, error) {
	m := x.reply
	var err error
	if len(m.Extra) > 0 { // glue spares a query, but nobody needs it
		m.Extra = nil
		if out, err = m.PackBuffer(dst); err != nil || len(out)+opt <= x.goal() {
			return out, err
		}
	}
	if !x.proved && x.thin(len(out)+opt-x.goal()) {
		out, err = m.PackBuffer(dst)
	}
	if err != nil || len(out)+opt <= x.limit() {
		return out, err
	}
	m.Truncated, m.Answer, m.Ns, m.Extra = true, nil, nil, nil
	return m.PackBuffer(dst)
}

// limit is how large the answer may be: beyond it the client is told to come by TCP.
func (x *exchange) limit() int {
	if x.by != UDP {
		return dns.MaxMsgSize
	}
	limit := x.q.options.limit()
	if x.q.qtype == dns.TypeTXT && !x.proven {
		limit = min(limit, maxDebug)
	}
	return limit
}

// limit is how large an answer over UDP may be.
func (o *options) limit() int {
	if o.present {
		return min(o.size, ourSize)
	}
	return dns.MinMsgSize
}

// goal is how large the answer becomes where something can be left out. Who has proven where he is gets everything.
func (x *exchange) goal() int {
	if x.by != UDP || x.proven {
		return x.limit()
	}
	return min(x.limit(), maxGain*x.size)
}

// thin leaves out as many addresses as it takes and reports whether it left out any. One stays, whatever its size. A
// client needs one gateway and another to fall back on, not all of them, so this is a whole answer and not a truncated
// one. Which ones stay turns with the query's id, so that every gateway gets its part; it does not depend on the
// client, so the scope is the same.
func (x *exchange) thin(excess int) bool {
	size, all := sizeA, x.reply.Answer
	switch x.q.qtype {
	case dns.TypeA:
	case dns.TypeAAAA:
		size = sizeAAAA
	default:
		return false
	}
	keep := spare(len(all), size, excess)
	if keep >= len(all) {
		return false
	}
	some := make([]dns.RR, keep)
	for i := range some {
		some[i] = all[(int(x.q.id)+i)%len(all)]
	}
	x.reply.Answer = some
	return true
}

// spare is how many of n records of a size stay when excess bytes have to go.
func spare(n, size, excess int) int {
	if excess <= 0 {
		return n
	}
	return max(1, n-(excess+size-1)/size)
}
