package dns

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Names below the zone that explain instead of steer.
const (
	whyLabel    = "_why."
	whoamiLabel = "_whoami."
	viewLabel   = "_view."
)

// hinfoTTL is that of the minimal answer to ANY (RFC 8482) at most, in seconds.
const hinfoTTL = 3600

// answer fills in the answer to a question within the zone.
func (x *exchange) answer(debug bool) {
	if !x.exists(debug) {
		x.reply.Rcode, x.absent = dns.RcodeNameError, true
		x.negative()
		return
	}
	switch x.q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		x.addresses()
	case dns.TypeHTTPS, dns.TypeSVCB:
		x.bindings()
	case dns.TypeCAA:
		x.authorities()
	case dns.TypeSOA:
		if x.lower == x.zone.Name {
			x.reply.Answer = append(x.reply.Answer, x.zone.soa(x.q.name, x.zone.TTL))
		}
	case dns.TypeNS:
		if x.lower == x.zone.Name {
			x.nameservers()
		}
	case dns.TypeTXT:
		if debug {
			x.explanations()
		}
	case dns.TypeDNSKEY, dns.TypeCDS, dns.TypeCDNSKEY:
		x.keys()
	case dns.TypeNSEC:
		x.denial()
	case dns.TypeANY:
		hinfo := &dns.HINFO{Hdr: x.header(dns.TypeHINFO, min(hinfoTTL, x.zone.TTL)), Cpu: "RFC8482"}
		x.reply.Answer = append(x.reply.Answer, hinfo)
	}
	if len(x.reply.Answer) == 0 {
		x.remarks.scope = 0 // RFC 7871, 7.4: what is not there is not there for anybody
		x.negative()
	}
}

// exists reports whether anything stands at or below the name.
func (x *exchange) exists(debug bool) bool {
	if x.lower == x.zone.Name || debug && x.explains() || x.view.Exists(x.lower) {
		return true
	}
	if _, ok := x.view.Lookup([]byte(x.lower)); ok {
		return true
	}
	for _, ns := range x.zone.NS {
		if dns.IsSubDomain(x.lower, ns.Name) {
			return true
		}
	}
	return false
}

// explains reports whether the name is one of those that explain.
func (x *exchange) explains() bool {
	if x.lower == whoamiLabel+x.zone.Name || x.lower == viewLabel+x.zone.Name {
		return true
	}
	_, ok := x.why()
	return ok
}

// why is the service that the name asks an explanation of.
func (x *exchange) why() (int, bool) {
	service, ok := strings.CutPrefix(x.lower, whyLabel)
	if !ok {
		return 0, false
	}
	return x.view.Lookup([]byte(service))
}

// addresses answers A and AAAA: a name server's own, or those that the view sends the client to.
func (x *exchange) addresses() {
	for _, ns := range x.zone.NS {
		if ns.Name == x.lower {
			x.add(ns.Addrs, x.zone.TTL)
			return
		}
	}
	if a, ok := x.steer(); ok {
		x.add(a.Addrs, a.TTL)
	}
}

// bindings answers HTTPS and SVCB with the gateways that A and AAAA would answer, where they speak TLS.
func (x *exchange) bindings() {
	if a, ok := x.steer(); ok && a.Ready != nil && a.Ready.binding != nil {
		rr := &dns.RFC3597{Hdr: x.header(x.q.qtype, a.TTL), Rdata: hex.EncodeToString(a.Ready.binding)}
		x.reply.Answer = append(x.reply.Answer, rr)
	}
}

// authorities answers CAA, which stands at the apex and holds for all below (RFC 8659, 3).
func (x *exchange) authorities() {
	if x.lower != x.zone.Name {
		return
	}
	for _, c := range x.zone.CAA {
		rr := &dns.CAA{Hdr: x.header(dns.TypeCAA, x.zone.TTL), Flag: c.Flags, Tag: c.Tag, Value: escapeTXT(c.Value)}
		x.reply.Answer = append(x.reply.Answer, rr)
	}
}

// steer asks the view where the client is sent, and reports false where the name is no service's or there is nowhere.
func (x *exchange) steer() (Answer, bool) {
	id, ok := x.view.Lookup([]byte(x.lower))
	if !ok {
		return Answer{}, false
	}
	x.service = id
	a := x.view.Answer(id, x.client())
	x.given, x.stale, x.remarks.ede = a, a.Stale, a.ede()
	x.remarks.scope = a.Scope
	return a, a.OK
}

// add answers with the addresses that are of the type that was asked for.
func (x *exchange) add(addrs []netip.Addr, ttl uint32) {
	for _, addr := range addrs {
		if rr := address(x.header(x.q.qtype, ttl), addr); rr != nil {
			x.reply.Answer = append(x.reply.Answer, rr)
		}
	}
}

// address is the record of an address, or nil when it is not of the header's type.
func address(h dns.RR_Header, addr netip.Addr) dns.RR {
	addr = addr.Unmap()
	switch {
	case h.Rrtype == dns.TypeA && addr.Is4():
		return &dns.A{Hdr: h, A: addr.AsSlice()}
	case h.Rrtype == dns.TypeAAAA && addr.Is6():
		return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
	}
	return nil
}

// nameservers answers NS, with the addresses of those that stand in the zone beside it.
func (x *exchange) nameservers() {
	for _, ns := range x.zone.NS {
		x.reply.Answer = append(x.reply.Answer, &dns.NS{Hdr: x.header(dns.TypeNS, x.zone.TTL), Ns: ns.Name})
		if !dns.IsSubDomain(x.zone.Name, ns.Name) {
			continue
		}
		for _, addr := range ns.Addrs {
			h := dns.RR_Header{Name: ns.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: x.zone.TTL}
			if addr.Unmap().Is6() {
				h.Rrtype = dns.TypeAAAA
			}
			x.reply.Extra = append(x.reply.Extra, address(h, addr))
		}
	}
}

// explanations answers TXT. They hold for one address at one moment: nobody may keep them, nor give them to others.
func (x *exchange) explanations() {
	var lines []string
	if id, ok := x.why(); ok {
		x.service = id
		lines = x.view.Why(id, x.client())
	} else if x.lower == whoamiLabel+x.zone.Name {
		lines = x.view.Whoami(x.client())
	} else if x.lower == viewLabel+x.zone.Name {
		lines = x.view.State()
	}
	if len(lines) == 0 {
		return
	}
	x.remarks.scope = familyBits(x.q.options.subnet.family)
	x.reply.Answer = append(x.reply.Answer, x.txt(0, lines))
}

// client is the address to steer by: the one that the resolver passes on, else the resolver's own.
func (x *exchange) client() netip.Addr {
	if a, ok := x.q.options.subnet.client(); ok {
		return a
	}
	return x.from
}

// negative adds the SOA that says how long an absence may be remembered (RFC 2308).
func (x *exchange) negative() {
	x.reply.Ns = append(x.reply.Ns, x.zone.soa(x.zone.Name, min(x.zone.TTL, x.zone.Negative)))
}

// header is that of a record at the question's name, as it was written.
func (x *exchange) header(rtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: x.q.name, Rrtype: rtype, Class: dns.ClassINET, Ttl: ttl}
}

// maxTXT is the longest character-string, in octets.
const maxTXT = 255

// txt is a TXT record with one character-string for each line, escaped as the library wants it.
func (x *exchange) txt(ttl uint32, lines []string) *dns.TXT {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = escapeTXT(line[:min(len(line), maxTXT)])
	}
	return &dns.TXT{Hdr: x.header(dns.TypeTXT, ttl), Txt: out}
}

var txtEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func escapeTXT(s string) string { return txtEscapes.Replace(s) }
