package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// maxAmplification is the target ratio of the sizes of a UDP answer and its query. It is the gain of an attacker who
// spoofs a victim's address. At 3 an ordinary echo service gains more; QUIC uses the same limit (RFC 9000, 8).
const maxAmplification = 3

// maxUDPTXT bounds TXT over UDP, in bytes. Explanations are for people, whose tools retry over TCP at no cost, where
// addresses cannot be spoofed. 512 is what every DNS client accepts. Less would need a second round trip for short
// explanations, and attackers find larger amplification elsewhere.
const maxUDPTXT = dns.MinMsgSize

// packReply encodes the answer, reduced to what the client accepts and to what may go to an unverified address.
func (x *queryExchange) packReply(dst []byte) ([]byte, error) {
	m := x.reply
	m.Compress = true
	m.Rcode, x.answerOPT.rcode = m.Rcode&0xf, m.Rcode
	defer func() { m.Rcode = x.answerOPT.rcode }()
	var opt []byte
	if x.q.queryOPT.present {
		opt = x.answerOPT.appendTo(nil, &x.q.queryOPT)
	}
	out, err := m.PackBuffer(dst)
	if err == nil && len(out)+len(opt) > x.sizeGoal() {
		out, err = x.shrinkReply(dst, out, len(opt))
	}
	if err != nil || opt == nil {
		return out, err
	}
	if x.answerOPT.padBlock > 0 && x.q.queryOPT.padded {
		opt = nil // the padding depends on the length of the whole message
		out = x.answerOPT.appendTo(out, &x.q.queryOPT)
	}
	binary.BigEndian.PutUint16(out[10:], binary.BigEndian.Uint16(out[10:])+1)
	return append(out, opt...), nil
}

// shrinkReply removes optional records, and in the end all records.
func (x *queryExchange) shrinkReply(dst, out []byte, opt int) ([]byte, error) {
	m := x.reply
	var err error
	if len(m.Extra) > 0 { // glue saves a query but is optional
		m.Extra = nil
		if out, err = m.PackBuffer(dst); err != nil || len(out)+opt <= x.sizeGoal() {
			return out, err
		}
	}
	if !x.hasSignatures && x.dropAddresses(len(out)+opt-x.sizeGoal()) {
		out, err = m.PackBuffer(dst)
	}
	if err != nil || len(out)+opt <= x.sizeLimit() {
		return out, err
	}
	m.Truncated, m.Answer, m.Ns, m.Extra = true, nil, nil, nil
	return m.PackBuffer(dst)
}

// sizeLimit is the largest allowed answer: beyond it the answer is truncated and the client retries over TCP.
func (x *queryExchange) sizeLimit() int {
	if x.transport != UDP {
		return dns.MaxMsgSize
	}
	limit := x.q.queryOPT.udpLimit()
	if x.q.qtype == dns.TypeTXT && !x.cookieValid {
		limit = min(limit, maxUDPTXT)
	}
	return limit
}

// udpLimit is the largest allowed answer over UDP.
func (o *queryOPT) udpLimit() int {
	if o.present {
		return min(o.udpSize, maxUDPSize)
	}
	return dns.MinMsgSize
}

// sizeGoal is the intended size of an answer with optional records. A client with a verified address gets all
// records.
func (x *queryExchange) sizeGoal() int {
	if x.transport != UDP || x.cookieValid {
		return x.sizeLimit()
	}
	return min(x.sizeLimit(), maxAmplification*x.querySize)
}

// dropAddresses removes addresses until excess bytes are saved, and reports whether it removed any. One address
// always stays. A client needs one gateway and a second to fall back on, so the answer counts as complete and not as
// truncated. The query's id selects the addresses that stay, so every gateway gets its share. The selection does not
// depend on the client, so the scope is unchanged.
func (x *queryExchange) dropAddresses(excess int) bool {
	size, all := recordLenA, x.reply.Answer
	switch x.q.qtype {
	case dns.TypeA:
	case dns.TypeAAAA:
		size = recordLenAAAA
	default:
		return false
	}
	keep := computeKeepCount(len(all), size, excess)
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

// computeKeepCount returns how many of n records of a size stay when excess bytes must be saved.
func computeKeepCount(n, size, excess int) int {
	if excess <= 0 {
		return n
	}
	return max(1, n-(excess+size-1)/size)
}
