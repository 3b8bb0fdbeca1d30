package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// Bits of the header's flags.
const (
	bitQR, bitAA, bitTC, bitRD = 0x8000, 0x0400, 0x0200, 0x0100
	bitRA, bitZ, bitAD, bitCD  = 0x0080, 0x0040, 0x0020, 0x0010
)

const bitDO = 0x8000 // of an OPT record's TTL

// want is what a rule asks of an answer.
type want struct {
	silent   bool
	rcode    int
	flags    uint16 // all bits but the rcode; QR is understood
	question bool
	answers  int
	soa      bool
	opt      bool
	check    func(t *testing.T, m *dns.Msg, raw []byte)
}

// rule is one rule of the protocol with a message that breaks or uses it.
type rule struct {
	name string
	raw  []byte
	want want
}

func ok(n int, opt bool) want {
	return want{flags: bitAA, question: true, answers: n, opt: opt}
}

func nodata(opt bool) want { return want{flags: bitAA, question: true, soa: true, opt: opt} }

func failed(rcode int, opt bool) want { return want{rcode: rcode, question: true, opt: opt} }

func TestRules(t *testing.T) {
	var rules []rule
	for _, set := range [][]rule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		rules = append(rules, set...)
	}
	s := start(t, newWorld(), nil)
	for _, r := range rules {
		t.Run("udp/"+r.name, func(t *testing.T) { r.want.hold(t, exchangeUDP(t, s, r.raw)) })
		t.Run("tcp/"+r.name, func(t *testing.T) { r.want.hold(t, exchangeTCP(t, s, r.raw)) })
	}
}

func (w want) hold(t *testing.T, raw []byte) {
	t.Helper()
	if raw == nil || w.silent {
		if (raw == nil) != w.silent {
			t.Fatalf("answer %x, want silence %v", raw, w.silent)
		}
		return
	}
	m := unpack(t, raw)
	got := binary.BigEndian.Uint16(raw[2:]) &^ 0x000f
	if want := w.flags | bitQR; got != want {
		t.Errorf("flags %04x, want %04x", got, want)
	}
	if binary.BigEndian.Uint16(raw) != 0x1234 {
		t.Errorf("id %x is not the query's", raw[:2])
	}
	if m.Rcode != w.rcode {
		t.Errorf("rcode %s, want %s", dns.RcodeToString[m.Rcode], dns.RcodeToString[w.rcode])
	}
	if (len(m.Question) == 1) != w.question || len(m.Question) > 1 {
		t.Errorf("%d questions, want one: %v", len(m.Question), w.question)
	}
	if len(m.Answer) != w.answers {
		t.Errorf("answers %v, want %d", m.Answer, w.answers)
	}
	soa := slices.ContainsFunc(m.Ns, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSOA })
	if soa != w.soa {
		t.Errorf("authority %v, want SOA: %v", m.Ns, w.soa)
	}
	if (m.IsEdns0() != nil) != w.opt {
		t.Errorf("OPT %v, want one: %v", m.IsEdns0(), w.opt)
	}
	if w.check != nil {
		w.check(t, m, raw)
	}
}

func (w want) and(check func(t *testing.T, m *dns.Msg, raw []byte)) want {
	w.check = check
	return w
}

func headerRules() []rule {
	q := query1("chat.api.example.", dns.TypeA)
	refused := query1("elsewhere.example.", dns.TypeA)
	rd := ok(1, false)
	rd.flags |= bitRD
	cd := ok(1, false)
	cd.flags |= bitCD
	refusedRD := failed(dns.RcodeRefused, false)
	refusedRD.flags |= bitRD
	notImp := func(op uint16) want { return want{rcode: dns.RcodeNotImplemented, flags: op << 11} }
	rules := []rule{
		{"plain", q, ok(1, false)},
		{"a response is never answered", flags(q, bitQR), want{silent: true}},
		{"a response with an unknown opcode is never answered", flags(q, bitQR|15<<11), want{silent: true}},
		{"shorter than a header", q[:11], want{silent: true}},
		{"empty", nil, want{silent: true}},
		{"RD is copied", flags(q, bitRD), rd},
		{"RD is copied into a refusal, AA is not set", flags(refused, bitRD), refusedRD},
		{"CD is copied", flags(q, bitCD), cd},
		{"AD is not ours to set", flags(q, bitAD), ok(1, false)},
		{"AA in a query is ignored", flags(q, bitAA), ok(1, false)},
		{"RA in a query is ignored", flags(q, bitRA), ok(1, false)},
		{"TC in a query is ignored", flags(q, bitTC), ok(1, false)},
		{"Z in a query is ignored", flags(q, bitZ), ok(1, false)},
		{"rcode in a query is ignored", flags(q, 5), ok(1, false)},
		{"opcode 15 with a header alone", []byte{0x12, 0x34, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0}, notImp(15)},
		{"a body of another opcode is not read", append(slices.Clone(flags(q, 6<<11)), 1, 2, 3), notImp(6)},
	}
	for op := uint16(1); op < 16; op++ {
		name := "opcode " + string('a'+rune(op)-1)
		rules = append(rules,
			rule{name + " is not implemented, question empty", flags(q, op<<11), notImp(op)},
			rule{name + " copies no flag", flags(q, op<<11|bitRD|bitRA|bitAD|bitCD|bitAA|bitTC|bitZ), notImp(op)})
	}
	return rules
}

func bodyRules() []rule {
	q := query1("chat.api.example.", dns.TypeA)
	count := func(at int, n byte) []byte { return with(q, func(b []byte) { b[at] = n }) }
	two := appendQuestion(count(5, 2), "chat.api.example.", dns.TypeAAAA, dns.ClassINET)
	none := []byte{0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	loop := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}
	back := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 4, 0, 1, 0, 1}
	long := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for range 5 {
		long = append(append(long, 63), bytes.Repeat([]byte{'a'}, 63)...)
	}
	long = append(long, 0, 0, 1, 0, 1)
	class := func(c uint16) []byte {
		return with(q, func(b []byte) { binary.BigEndian.PutUint16(b[len(b)-2:], c) })
	}
	return []rule{
		{"no question", none, want{rcode: dns.RcodeFormatError}},
		{"two questions", two, failed(dns.RcodeFormatError, false)},
		{"trailing garbage", append(slices.Clone(q), 1), failed(dns.RcodeFormatError, false)},
		{"trailing garbage behind an OPT", append(edns(q, 1232, 0, nil), 1), failed(dns.RcodeFormatError, true)},
		{"a record is announced that is not there", count(11, 1), failed(dns.RcodeFormatError, false)},
		{"an answer is announced that is not there", count(7, 1), failed(dns.RcodeFormatError, false)},
		{"QNAME points at itself", loop, want{silent: true}},
		{"QNAME points into the header", back, want{silent: true}},
		{"QNAME is longer than 255", long, want{silent: true}},
		{"QNAME label type 01", with(q, func(b []byte) { b[12] = 0x41 }), want{silent: true}},
		{"cut off in QNAME", q[:15], want{silent: true}},
		{"cut off in QTYPE", q[:len(q)-3], want{silent: true}},
		{"class ANY", class(dns.ClassANY), failed(dns.RcodeRefused, false)},
		{"class NONE", class(dns.ClassNONE), failed(dns.RcodeRefused, false)},
		{"class HS", class(dns.ClassHESIOD), failed(dns.RcodeRefused, false)},
		{"class CH for a service", class(dns.ClassCHAOS), failed(dns.RcodeRefused, false)},
		{"id.server in CH", chaosQuery("id.server."), ok(1, false)},
		{"hostname.bind in CH", chaosQuery("HOSTNAME.bind."), ok(1, false)},
		{"version.bind in CH", chaosQuery("version.bind."), failed(dns.RcodeRefused, false)},
	}
}

func chaosQuery(name string) []byte {
	return appendQuestion([]byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, name, dns.TypeTXT, dns.ClassCHAOS)
}

func ednsRules() []rule {
	q := query1("chat.api.example.", dns.TypeA)
	out := query1("elsewhere.example.", dns.TypeA)
	none := query1("none.api.example.", dns.TypeA)
	nx := nodata(true)
	nx.rcode = dns.RcodeNameError
	ownerOPT := append(with(q, func(b []byte) { b[11] = 1 }), 1, 'x', 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0)
	early := append(with(q, func(b []byte) { b[7] = 1 }), 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0)
	return []rule{
		{"OPT is answered by ours", edns(q, 4096, 0, nil), ok(1, true).and(plainOPT)},
		{"OPT in a refusal", edns(out, 4096, 0, nil), failed(dns.RcodeRefused, true).and(plainOPT)},
		{"OPT in NXDOMAIN", edns(none, 4096, 0, nil), nx.and(plainOPT)},
		{"DO is copied", edns(q, 4096, bitDO, nil), ok(1, true).and(func(t *testing.T, m *dns.Msg, _ []byte) {
			if !m.IsEdns0().Do() {
				t.Error("DO was not copied")
			}
		})},
		{"AD stays clear with DO", flags(edns(q, 4096, bitDO, nil), bitAD), ok(1, true)},
		{"unknown EDNS flags are cleared", edns(q, 4096, 0x7fff, nil), ok(1, true).and(plainOPT)},
		{"unknown options are not echoed", edns(q, 4096, 0, opt1(100, 1, 2, 3)), ok(1, true).and(plainOPT)},
		{"payload 0 counts as 512", edns(q, 0, 0, nil), ok(1, true).and(plainOPT)},
		{"version 1", edns(q, 4096, 1<<16, nil), failed(dns.RcodeBadVers, true).and(plainOPT)},
		{"version 255 with DO", edns(q, 4096, 255<<16|bitDO, nil), failed(dns.RcodeBadVers, true)},
		{
			"version 1 with options nobody understands", edns(q, 4096, 1<<16, opt1(8, 9)),
			failed(dns.RcodeBadVers, true).and(plainOPT),
		},
		{"two OPT", edns(edns(q, 4096, 0, nil), 4096, 0, nil), failed(dns.RcodeFormatError, true)},
		{"OPT with an owner", ownerOPT, failed(dns.RcodeFormatError, false)},
		{"OPT in the answer section", early, failed(dns.RcodeFormatError, false)},
		{"an option runs over the OPT's end", edns(q, 4096, 0, []byte{0, 100, 0, 5, 1}), failed(dns.RcodeFormatError, true)},
		{"half an option", edns(q, 4096, 0, []byte{0, 100, 0}), failed(dns.RcodeFormatError, true)},
		{"NSID", edns(q, 4096, 0, opt1(3)), ok(1, true).and(func(t *testing.T, m *dns.Msg, _ []byte) {
			o := m.IsEdns0().Option
			if len(o) != 1 || o[0].String() != "6731" { // "g1"
				t.Errorf("options %v, want the NSID", o)
			}
		})},
		{"NSID with data", edns(q, 4096, 0, opt1(3, 1)), failed(dns.RcodeFormatError, true)},
		{"cookie of 8", edns(q, 4096, 0, opt1(10, make([]byte, 8)...)), ok(1, true).and(plainOPT)},
		{"cookie of 24", edns(q, 4096, 0, opt1(10, make([]byte, 24)...)), ok(1, true).and(plainOPT)},
		{"cookie of 7", edns(q, 4096, 0, opt1(10, make([]byte, 7)...)), failed(dns.RcodeFormatError, true)},
		{"cookie of 9", edns(q, 4096, 0, opt1(10, make([]byte, 9)...)), failed(dns.RcodeFormatError, true)},
		{"cookie of 41", edns(q, 4096, 0, opt1(10, make([]byte, 41)...)), failed(dns.RcodeFormatError, true)},
		{"padding is not echoed", edns(q, 4096, 0, opt1(12, make([]byte, 700)...)), ok(1, true).and(plainOPT)},
		{
			"opcode with OPT", flags(edns(q, 4096, 0, nil), 5<<11),
			want{rcode: dns.RcodeNotImplemented, flags: 5 << 11, opt: true, check: plainOPT},
		},
	}
}

// plainOPT holds that the answer's OPT is version 0, of our size, with no flag and no option.
func plainOPT(t *testing.T, m *dns.Msg, _ []byte) {
	t.Helper()
	o := m.IsEdns0()
	if o.Version() != 0 || o.UDPSize() != 1232 || o.Hdr.Ttl&0xffffff != 0 || len(o.Option) != 0 {
		t.Errorf("OPT %v ttl %08x", o, o.Hdr.Ttl)
	}
}

func nameRules() []rule {
	nx := nodata(false)
	nx.rcode = dns.RcodeNameError
	mixed := query1("ChAt.aPi.ExAmPlE.", dns.TypeA)
	return []rule{
		{"QNAME comes back byte by byte (0x20)", mixed, ok(1, false).and(func(t *testing.T, m *dns.Msg, raw []byte) {
			if !bytes.Equal(raw[12:len(mixed)], mixed[12:]) {
				t.Errorf("question %x, want %x", raw[12:len(mixed)], mixed[12:])
			}
			if m.Answer[0].Header().Name != "ChAt.aPi.ExAmPlE." {
				t.Errorf("owner %q", m.Answer[0].Header().Name)
			}
		})},
		{"out of zone", query1("api.example.org.", dns.TypeA), failed(dns.RcodeRefused, false)},
		{"the parent", query1("example.", dns.TypeSOA), failed(dns.RcodeRefused, false)},
		{"the root", query1(".", dns.TypeNS), failed(dns.RcodeRefused, false)},
		{"a name that merely ends alike", query1("xapi.example.", dns.TypeA), failed(dns.RcodeRefused, false)},
		{"nothing there", query1("none.api.example.", dns.TypeA), nx.and(negativeSOA)},
		{"nothing there, ANY", query1("none.api.example.", dns.TypeANY), nx},
		{"nothing below a service", query1("x.idle.api.example.", dns.TypeA), nx},
		{"a region's child name", query1("eu.chat.api.example.", dns.TypeA), ok(1, false)},
		{"empty non-terminal above a service", query1("deep.api.example.", dns.TypeA), nodata(false).and(negativeSOA)},
		{"empty non-terminal above a name server", query1("dns.api.example.", dns.TypeA), nodata(false)},
		{"a name server's own address", query1("ns1.dns.api.example.", dns.TypeA), ok(1, false)},
		{"a name server's own IPv6 address", query1("NS1.dns.api.example.", dns.TypeAAAA), ok(1, false)},
		{"no region to send to is NODATA", query1("idle.api.example.", dns.TypeA), nodata(false).and(negativeSOA)},
		{"AAAA of an IPv4 name is NODATA", query1("chat.api.example.", dns.TypeAAAA), nodata(false)},
		{"A of an IPv6 name is NODATA", query1("six.deep.api.example.", dns.TypeA), nodata(false)},
		{"AAAA", query1("six.deep.api.example.", dns.TypeAAAA), ok(1, false)},
		{"apex has no address", query1("api.example.", dns.TypeA), nodata(false)},
		{"why of nothing", query1("_why.none.api.example.", dns.TypeTXT), nx},
		{"why has no address", query1("_why.chat.api.example.", dns.TypeA), nodata(false)},
		{"whoami of a service is nothing", query1("_whoami.chat.api.example.", dns.TypeTXT), nx},
	}
}

// negativeSOA holds that an absence is remembered for the smaller of the SOA's TTL and MINIMUM.
func negativeSOA(t *testing.T, m *dns.Msg, _ []byte) {
	t.Helper()
	soa := m.Ns[0].(*dns.SOA)
	if soa.Hdr.Ttl != 30 || soa.Minttl != 30 || soa.Hdr.Name != "api.example." {
		t.Errorf("authority %v", soa)
	}
}

func typeRules() []rule {
	txt := func(lines ...string) func(*testing.T, *dns.Msg, []byte) {
		return func(t *testing.T, m *dns.Msg, _ []byte) {
			t.Helper()
			rr := m.Answer[0].(*dns.TXT)
			if !slices.Equal(rr.Txt, lines) || rr.Hdr.Ttl != 0 {
				t.Errorf("TXT %q ttl %d, want %q and 0", rr.Txt, rr.Hdr.Ttl, lines)
			}
		}
	}
	rules := []rule{
		{"SOA", query1("api.example.", dns.TypeSOA), ok(1, false).and(func(t *testing.T, m *dns.Msg, _ []byte) {
			soa := m.Answer[0].(*dns.SOA)
			if soa.Serial != 7 || soa.Hdr.Ttl != 3600 || soa.Ns != "ns1.dns.api.example." || soa.Mbox != "hostmaster.api.example." {
				t.Errorf("SOA %v", soa)
			}
		})},
		{"NS with glue", edns(query1("api.example.", dns.TypeNS), 1232, 0, opt1(12, make([]byte, 60)...)), ok(2, true).and(func(t *testing.T, m *dns.Msg, _ []byte) {
			if len(m.Extra) != 3 { // of the name that stands in the zone, and the OPT
				t.Errorf("additional %v", m.Extra)
			}
		})},
		{"SOA below the apex is NODATA", query1("chat.api.example.", dns.TypeSOA), nodata(false)},
		{"NS below the apex is NODATA", query1("chat.api.example.", dns.TypeNS), nodata(false)},
		{"ANY is one HINFO", query1("chat.api.example.", dns.TypeANY), ok(1, false).and(func(t *testing.T, m *dns.Msg, _ []byte) {
			h, is := m.Answer[0].(*dns.HINFO)
			if !is || h.Cpu != "RFC8482" || h.Os != "" || h.Hdr.Ttl != 3600 {
				t.Errorf("answer %v", m.Answer)
			}
		})},
		{
			"why", query1("_why.chat.api.example.", dns.TypeTXT),
			ok(1, false).and(txt("region=eu", `quote=\"\\`, "client=127.0.0.1")),
		},
		{"whoami", query1("_WHOAMI.api.example.", dns.TypeTXT), ok(1, false).and(txt("client=127.0.0.1"))},
		{"AXFR", query1("api.example.", dns.TypeAXFR), failed(dns.RcodeRefused, false)},
		{"IXFR", query1("api.example.", dns.TypeIXFR), failed(dns.RcodeRefused, false)},
	}
	for _, other := range []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCAA, dns.TypeMX, dns.TypeDNSKEY, 65280} {
		rules = append(rules, rule{
			fmt.Sprintf("type %d is NODATA", other), query1("chat.api.example.", other), nodata(false),
		})
	}
	for _, meta := range []uint16{dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB} {
		rules = append(rules, rule{
			"meta type " + dns.TypeToString[meta],
			query1("chat.api.example.", meta), failed(dns.RcodeNotImplemented, false),
		})
	}
	for _, absent := range []uint16{
		0, dns.TypeMX, dns.TypeTXT, dns.TypeCNAME, dns.TypeHTTPS, dns.TypeCAA, dns.TypeDS,
		dns.TypeDNSKEY, dns.TypeHINFO, 666, 65280,
	} {
		rules = append(rules, rule{
			"absent " + dns.Type(absent).String(),
			query1("chat.api.example.", absent), nodata(false),
		})
	}
	return rules
}
