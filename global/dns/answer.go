package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Names below the zone that explain instead of steer.
const (
	whyLabel    = "_why."
	whoamiLabel = "_whoami."
)

// Timers of the SOA, for secondaries that there are none of; testers want them within RFC 1912's bounds.
const (
	soaRefresh = 3600
	soaRetry   = 900
	soaExpire  = 1_209_600
)

// hinfoTTL is that of the minimal answer to ANY (RFC 8482), in seconds.
const hinfoTTL = 3600

// answer fills in the answer to a question within the zone.
func (x *exchange) answer() {
	if !x.exists() {
		x.reply.Rcode = dns.RcodeNameError
		x.negative()
		return
	}
	switch x.q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		x.addresses()
	case dns.TypeSOA:
		if x.lower == x.zone.Name {
			x.reply.Answer = append(x.reply.Answer, x.soa(x.zone.TTL, x.q.name))
		}
	case dns.TypeNS:
		if x.lower == x.zone.Name {
			x.nameservers()
		}
	case dns.TypeTXT:
		x.explanations()
	case dns.TypeANY:
		hinfo := &dns.HINFO{Hdr: x.header(dns.TypeHINFO, hinfoTTL), Cpu: "RFC8482"}
		x.reply.Answer = append(x.reply.Answer, hinfo)
	}
	if len(x.reply.Answer) == 0 {
		x.scope = 0 // RFC 7871, 7.4: what is not there is not there for anybody
		x.negative()
	}
}

// exists reports whether anything stands at or below the name.
func (x *exchange) exists() bool {
	if x.lower == x.zone.Name || x.lower == whoamiLabel+x.zone.Name {
		return true
	}
	if _, ok := x.why(); ok || x.view.Exists(x.lower) {
		return true
	}
	if _, ok := x.view.Lookup(x.lower); ok {
		return true
	}
	for _, ns := range x.zone.NS {
		if dns.IsSubDomain(x.lower, ns.Name) {
			return true
		}
	}
	return false
}

// why is the service that the name asks an explanation of.
func (x *exchange) why() (int, bool) {
	service, ok := strings.CutPrefix(x.lower, whyLabel)
	if !ok {
		return 0, false
	}
	return x.view.Lookup(service)
}

// addresses answers A and AAAA: a name server's own, or those that the view sends the client to.
func (x *exchange) addresses() {
	for _, ns := range x.zone.NS {
		if ns.Name == x.lower {
			x.add(ns.Addrs, x.zone.TTL)
			return
		}
	}
	id, ok := x.view.Lookup(x.lower)
	if !ok {
		return
	}
	x.service = id
	a := x.view.Answer(id, x.client())
	x.stale = a.Stale
	if !a.OK {
		return
	}
	x.scope = a.Scope
	x.add(a.Addrs, a.TTL)
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
	}
	if len(lines) == 0 {
		return
	}
	x.scope = familyBits(x.q.options.subnet.family)
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
	x.reply.Ns = append(x.reply.Ns, x.soa(min(x.zone.TTL, x.zone.Negative), x.zone.Name))
}

func (x *exchange) soa(ttl uint32, owner string) *dns.SOA {
	primary := x.zone.Name
	if len(x.zone.NS) > 0 {
		primary = x.zone.NS[0].Name
	}
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  primary, Mbox: x.zone.Contact, Serial: x.zone.Serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: x.zone.Negative,
	}
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
