package dns

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Names below the zone that return explanations instead of addresses.
const (
	whyLabel    = "_why."
	whoamiLabel = "_whoami."
	viewLabel   = "_view."
)

// hinfoTTL bounds the TTL of the minimal answer to ANY (RFC 8482), in seconds.
const hinfoTTL = 3600

// fillAnswer fills in the answer to a question within the zone.
func (x *queryExchange) fillAnswer(debug bool) {
	if !x.nameExists(debug) {
		x.reply.Rcode, x.nameAbsent = dns.RcodeNameError, true
		x.addNegativeSOA()
		return
	}
	switch x.q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		x.answerAddresses()
	case dns.TypeHTTPS, dns.TypeSVCB:
		x.answerBindings()
	case dns.TypeCAA:
		x.answerCAA()
	case dns.TypeSOA:
		if x.lowerName == x.zone.Name {
			x.reply.Answer = append(x.reply.Answer, x.zone.newSOA(x.q.name, x.zone.TTL))
		}
	case dns.TypeNS:
		if x.lowerName == x.zone.Name {
			x.answerNS()
		}
	case dns.TypeTXT:
		if debug {
			x.answerTXT()
		}
	case dns.TypeDNSKEY, dns.TypeCDS, dns.TypeCDNSKEY:
		x.answerZoneKeys()
	case dns.TypeNSEC:
		x.answerNSEC()
	case dns.TypeANY:
		hinfo := &dns.HINFO{Hdr: x.recordHeader(dns.TypeHINFO, min(hinfoTTL, x.zone.TTL)), Cpu: "RFC8482"}
		x.reply.Answer = append(x.reply.Answer, hinfo)
	}
	if len(x.reply.Answer) == 0 {
		x.answerOPT.scope = 0 // RFC 7871, 7.4: a negative answer holds for every client
		x.addNegativeSOA()
	}
}

// nameExists reports whether any record exists at or below the name.
func (x *queryExchange) nameExists(debug bool) bool {
	if x.lowerName == x.zone.Name || debug && x.isDebugName() || x.snapshot.HasName(x.lowerName) {
		return true
	}
	if _, ok := x.snapshot.LookupService([]byte(x.lowerName)); ok {
		return true
	}
	for _, ns := range x.zone.NS {
		if dns.IsSubDomain(x.lowerName, ns.Name) {
			return true
		}
	}
	return false
}

// isDebugName reports whether the name is one of the debug names.
func (x *queryExchange) isDebugName() bool {
	if x.lowerName == whoamiLabel+x.zone.Name || x.lowerName == viewLabel+x.zone.Name {
		return true
	}
	_, ok := x.explainedService()
	return ok
}

// explainedService returns the service that a _why name asks about.
func (x *queryExchange) explainedService() (int, bool) {
	service, ok := strings.CutPrefix(x.lowerName, whyLabel)
	if !ok {
		return 0, false
	}
	return x.snapshot.LookupService([]byte(service))
}

// answerAddresses answers A and AAAA: with a name server's own addresses, or with those to which the snapshot steers
// the client.
func (x *queryExchange) answerAddresses() {
	for _, ns := range x.zone.NS {
		if ns.Name == x.lowerName {
			x.addAddresses(ns.Addrs, x.zone.TTL)
			return
		}
	}
	if a, ok := x.steerClient(); ok {
		x.addAddresses(a.Addrs, a.TTL)
	}
}

// answerBindings answers HTTPS and SVCB with the gateways of the A and AAAA answers, if they serve TLS.
func (x *queryExchange) answerBindings() {
	if a, ok := x.steerClient(); ok && a.Records != nil && a.Records.serviceBinding != nil {
		rr := &dns.RFC3597{Hdr: x.recordHeader(x.q.qtype, a.TTL), Rdata: hex.EncodeToString(a.Records.serviceBinding)}
		x.reply.Answer = append(x.reply.Answer, rr)
	}
}

// answerCAA answers CAA. The records are at the apex and apply to all names below (RFC 8659, 3).
func (x *queryExchange) answerCAA() {
	if x.lowerName != x.zone.Name {
		return
	}
	for _, c := range x.zone.CAA {
		rr := &dns.CAA{Hdr: x.recordHeader(dns.TypeCAA, x.zone.TTL), Flag: c.Flags, Tag: c.Tag, Value: escapeTXT(c.Value)}
		x.reply.Answer = append(x.reply.Answer, rr)
	}
}

// steerClient looks up the client's answer in the snapshot. It returns false if the name is no service's or there is
// no region to steer to.
func (x *queryExchange) steerClient() (ServiceAnswer, bool) {
	id, ok := x.snapshot.LookupService([]byte(x.lowerName))
	if !ok {
		return ServiceAnswer{}, false
	}
	x.serviceID = id
	a := x.snapshot.AnswerService(id, x.clientAddr())
	x.steered, x.stale, x.answerOPT.ede = a, a.Stale, a.extendedError()
	x.answerOPT.scope = a.Scope
	return a, a.OK
}

// addAddresses adds the addresses of the requested type to the answer.
func (x *queryExchange) addAddresses(addrs []netip.Addr, ttl uint32) {
	for _, addr := range addrs {
		if rr := addressRecord(x.recordHeader(x.q.qtype, ttl), addr); rr != nil {
			x.reply.Answer = append(x.reply.Answer, rr)
		}
	}
}

// addressRecord returns the record of an address, or nil if its family does not match the header's type.
func addressRecord(h dns.RR_Header, addr netip.Addr) dns.RR {
	addr = addr.Unmap()
	switch {
	case h.Rrtype == dns.TypeA && addr.Is4():
		return &dns.A{Hdr: h, A: addr.AsSlice()}
	case h.Rrtype == dns.TypeAAAA && addr.Is6():
		return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
	}
	return nil
}

// answerNS answers NS, with the addresses of the name servers that are within the zone.
func (x *queryExchange) answerNS() {
	for _, ns := range x.zone.NS {
		x.reply.Answer = append(x.reply.Answer, &dns.NS{Hdr: x.recordHeader(dns.TypeNS, x.zone.TTL), Ns: ns.Name})
		if !dns.IsSubDomain(x.zone.Name, ns.Name) {
			continue
		}
		for _, addr := range ns.Addrs {
			h := dns.RR_Header{Name: ns.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: x.zone.TTL}
			if addr.Unmap().Is6() {
				h.Rrtype = dns.TypeAAAA
			}
			x.reply.Extra = append(x.reply.Extra, addressRecord(h, addr))
		}
	}
}

// answerTXT answers TXT. The texts hold for one client address at one time, so they must not be cached or shared.
func (x *queryExchange) answerTXT() {
	var lines []string
	if id, ok := x.explainedService(); ok {
		x.serviceID = id
		lines = x.snapshot.ExplainAnswer(id, x.clientAddr())
	} else if x.lowerName == whoamiLabel+x.zone.Name {
		lines = x.snapshot.DescribeClient(x.clientAddr())
	} else if x.lowerName == viewLabel+x.zone.Name {
		lines = x.snapshot.DescribeState()
	}
	if len(lines) == 0 {
		return
	}
	x.answerOPT.scope = familyBits(x.q.queryOPT.subnet.family)
	x.reply.Answer = append(x.reply.Answer, x.newTXT(0, lines))
}

// clientAddr returns the address to steer by: the client subnet of the query, else the resolver's own address.
func (x *queryExchange) clientAddr() netip.Addr {
	if a, ok := x.q.queryOPT.subnet.clientAddr(); ok {
		return a
	}
	return x.from
}

// addNegativeSOA adds the SOA, which states how long a negative answer may be cached (RFC 2308).
func (x *queryExchange) addNegativeSOA() {
	x.reply.Ns = append(x.reply.Ns, x.zone.newSOA(x.zone.Name, min(x.zone.TTL, x.zone.NegativeTTL)))
}

// recordHeader returns the header of a record at the question's name, in its original spelling.
func (x *queryExchange) recordHeader(rtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: x.q.name, Rrtype: rtype, Class: dns.ClassINET, Ttl: ttl}
}

// maxTXTString is the longest character-string, in octets.
const maxTXTString = 255

// newTXT returns a TXT record with one character-string per line, escaped as the library requires.
func (x *queryExchange) newTXT(ttl uint32, lines []string) *dns.TXT {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = escapeTXT(line[:min(len(line), maxTXTString)])
	}
	return &dns.TXT{Hdr: x.recordHeader(dns.TypeTXT, ttl), Txt: out}
}

var txtEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func escapeTXT(s string) string { return txtEscapes.Replace(s) }
