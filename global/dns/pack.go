package dns

import "github.com/miekg/dns"

// maxGain is how many times its query an answer over UDP should be at most. Whoever sends queries in a victim's name
// gains that much: at 3 he does better with an ordinary echo of somebody else's, as QUIC reckons too (RFC 9000, 8).
const maxGain = 3

// maxDebug bounds TXT over UDP, in bytes. Only people ask for explanations, and their tools ask again over TCP at no
// cost, where nobody speaks in another's name. 512 is what every client of DNS was always sent; with less, a short
// explanation would need a second round trip, and an attacker finds more elsewhere.
const maxDebug = dns.MinMsgSize

// pack writes the answer, cut down to what the client takes and to what may be sent to one that has proven nothing.
func (h *handler) pack(dst []byte, x *exchange, verdict fault) ([]byte, error) {
	m := x.reply
	m.Compress = true
	var opt []dns.RR
	if x.q.options.present {
		opt = []dns.RR{h.opt(x, verdict)}
	}
	glue := m.Extra
	m.Extra = append(glue[:len(glue):len(glue)], opt...)
	out, err := m.PackBuffer(dst)
	if err != nil || len(out) <= x.goal() {
		return out, err
	}
	if len(glue) > 0 { // they spare a query, but nobody needs them
		m.Extra = opt
		if out, err = m.PackBuffer(dst); err != nil || len(out) <= x.goal() {
			return out, err
		}
	}
	if x.thin(len(out) - x.goal()) {
		out, err = m.PackBuffer(dst)
	}
	if err != nil || len(out) <= x.limit() {
		return out, err
	}
	m.Truncated, m.Answer, m.Ns, m.Extra = true, nil, nil, opt
	return m.PackBuffer(dst)
}

// limit is how large the answer may be: beyond it the client is told to come by TCP.
func (x *exchange) limit() int {
	limit := dns.MinMsgSize
	switch {
	case x.tcp:
		return dns.MaxMsgSize
	case x.q.options.present:
		limit = min(x.q.options.size, ourSize)
	}
	if x.q.qtype == dns.TypeTXT {
		limit = min(limit, maxDebug)
	}
	return limit
}

// goal is how large the answer becomes where something can be left out.
func (x *exchange) goal() int {
	if x.tcp {
		return x.limit()
	}
	return min(x.limit(), maxGain*x.size)
}

// Sizes of an address record whose name is a pointer to the question's, in bytes.
const (
	sizeA    = 2 + 10 + 4
	sizeAAAA = 2 + 10 + 16
)

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
	keep := max(1, len(all)-(excess+size-1)/size)
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
