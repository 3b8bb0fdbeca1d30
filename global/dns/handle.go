package dns

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// handler turns one message into its answer. It is a function of its arguments and holds no state between messages.
type handler struct {
	view func() View
	nsid string
	idle uint16 // TCP idle timeout, in 100 ms, as RFC 7828 states it
}

// exchange is one question on its way to an answer.
type exchange struct {
	q       query
	from    netip.Addr // the resolver
	size    int        // of the query, in bytes
	tcp     bool
	view    View
	zone    *Zone
	lower   string // the question's name in lower case
	reply   *dns.Msg
	scope   uint8
	service int
	stale   bool
}

// handle appends the answer to a message to dst[:0]. It reports false when there is to be none.
func (h *handler) handle(dst, msg []byte, from netip.Addr, tcp bool) ([]byte, Event, bool) {
	q, verdict := parse(msg)
	x := &exchange{q: q, from: from.Unmap(), size: len(msg), tcp: tcp, reply: new(dns.Msg), service: -1}
	event := Event{Qtype: q.qtype, Rcode: Dropped, Service: -1, TCP: tcp}
	if verdict == mute {
		return nil, event, false
	}
	x.head()
	switch verdict {
	case foreign:
		x.reply.Rcode = dns.RcodeNotImplemented
	case garbled:
		x.reply.Rcode = dns.RcodeFormatError
	case newer:
		x.reply.Rcode = dns.RcodeBadVers
	default:
		h.resolve(x)
	}
	out, err := h.pack(dst, x, verdict)
	if err != nil { // the view holds something that no message can carry
		x.reply.Rcode, x.reply.Answer, x.reply.Ns, x.reply.Extra = dns.RcodeServerFailure, nil, nil, nil
		x.reply.Authoritative = false
		if out, err = h.pack(dst, x, verdict); err != nil {
			return nil, event, false
		}
	}
	event.Rcode, event.Service, event.Stale = x.reply.Rcode, x.service, x.stale
	return out, event, true
}

// head sets what every answer carries: flags are copied one by one, because those that a query must not set are lost.
func (x *exchange) head() {
	x.reply.Id, x.reply.Response, x.reply.Opcode = x.q.id, true, x.q.opcode
	if x.q.opcode != dns.OpcodeQuery {
		return
	}
	x.reply.RecursionDesired, x.reply.CheckingDisabled = x.q.rd, x.q.cd
	if x.q.name != "" {
		x.reply.Question = []dns.Question{{Name: x.q.name, Qtype: x.q.qtype, Qclass: x.q.qclass}}
	}
}

// resolve finds the answer to a sound query.
func (h *handler) resolve(x *exchange) {
	x.lower = strings.ToLower(x.q.name)
	switch {
	case x.q.qclass == dns.ClassCHAOS:
		h.chaos(x)
		return
	case x.q.qclass != dns.ClassINET:
		x.reply.Rcode = dns.RcodeRefused
		return
	}
	if x.view = h.view(); x.view != nil {
		x.zone = x.view.Zone()
	}
	switch {
	case x.zone == nil:
		x.reply.Rcode = dns.RcodeServerFailure
	case !dns.IsSubDomain(x.zone.Name, x.lower):
		x.reply.Rcode = dns.RcodeRefused
	case x.q.qtype == dns.TypeAXFR || x.q.qtype == dns.TypeIXFR:
		x.reply.Rcode = dns.RcodeRefused
	case metaType(x.q.qtype):
		x.reply.Rcode = dns.RcodeNotImplemented
	default:
		x.reply.Authoritative = true
		x.answer()
	}
}

// metaType reports whether a type is about messages or servers and never stored, ANY and the transfers aside.
func metaType(t uint16) bool {
	switch t {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB:
		return true
	}
	return false
}

// chaos tells the node's name to those who ask for it in class CH, and nothing else.
func (h *handler) chaos(x *exchange) {
	known := x.lower == "id.server." || x.lower == "hostname.bind."
	if h.nsid == "" || !known || x.q.qtype != dns.TypeTXT && x.q.qtype != dns.TypeANY {
		x.reply.Rcode = dns.RcodeRefused
		return
	}
	x.reply.Authoritative = true
	txt := x.txt(0, []string{h.nsid})
	txt.Hdr.Class = dns.ClassCHAOS
	x.reply.Answer = append(x.reply.Answer, txt)
}

// opt is the answer's own OPT record: only what was asked for and what we know goes into it.
func (h *handler) opt(x *exchange, verdict fault) *dns.OPT {
	o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	o.SetUDPSize(ourSize)
	if x.q.options.do {
		o.SetDo()
	}
	if verdict != sound {
		return o
	}
	if s := &x.q.options.subnet; s.present {
		o.Option = append(o.Option, &dns.EDNS0_LOCAL{Code: dns.EDNS0SUBNET, Data: s.echo(x.scope)})
	}
	if x.q.options.nsid && h.nsid != "" {
		o.Option = append(o.Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: hex.EncodeToString([]byte(h.nsid))})
	}
	if x.q.options.keepalive && x.tcp {
		o.Option = append(o.Option, &dns.EDNS0_LOCAL{
			Code: dns.EDNS0TCPKEEPALIVE, Data: []byte{byte(h.idle >> 8), byte(h.idle)},
		})
	}
	return o
}
