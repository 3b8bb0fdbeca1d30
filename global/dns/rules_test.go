package dns

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Bits of the header's flags.
const (
	bitQR, bitAA, bitTC, bitRD = 0x8000, 0x0400, 0x0200, 0x0100
	bitRA, bitZ, bitAD, bitCD  = 0x0080, 0x0040, 0x0020, 0x0010
)

const bitDO = 0x8000 // of an OPT record's TTL

// wantAnswer is the answer that a rule requires.
type wantAnswer struct {
	silent   bool
	rcode    int
	flags    uint16 // all bits but the rcode; QR is implied
	question bool
	answers  int
	soa      bool
	opt      bool
	check    func(t *testing.T, m *dns.Msg, raw []byte)
}

// protocolRule is one rule of the protocol with a message that breaks or uses it.
type protocolRule struct {
	name string
	raw  []byte
	want wantAnswer
}

func wantOK(n int, opt bool) wantAnswer {
	return wantAnswer{flags: bitAA, question: true, answers: n, opt: opt}
}

func wantNoData(opt bool) wantAnswer {
	return wantAnswer{flags: bitAA, question: true, soa: true, opt: opt}
}

func wantRcode(rcode int, opt bool) wantAnswer {
	return wantAnswer{rcode: rcode, question: true, opt: opt}
}

func TestProtocolRules(t *testing.T) {
	var rules []protocolRule
	for _, set := range [][]protocolRule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		rules = append(rules, set...)
	}
	s := startServer(t, newFakeSnapshot(), nil)
	for _, r := range rules {
		t.Run("udp/"+r.name, func(t *testing.T) { r.want.checkAnswer(t, exchangeUDP(t, s, r.raw)) })
		t.Run("tcp/"+r.name, func(t *testing.T) { r.want.checkAnswer(t, exchangeTCP(t, s, r.raw)) })
	}
}

func (w wantAnswer) checkAnswer(t *testing.T, raw []byte) {
	t.Helper()
	if raw == nil || w.silent {
		if (raw == nil) != w.silent {
			t.Fatalf("answer %x, want no answer %v", raw, w.silent)
		}
		return
	}
	m := unpackMessage(t, raw)
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

func (w wantAnswer) withCheck(check func(t *testing.T, m *dns.Msg, raw []byte)) wantAnswer {
	w.check = check
	return w
}

func headerRules() []protocolRule {
	q := plainQuery("chat.api.example.", dns.TypeA)
	refused := plainQuery("elsewhere.example.", dns.TypeA)
	rd := wantOK(1, false)
	rd.flags |= bitRD
	cd := wantOK(1, false)
	cd.flags |= bitCD
	refusedRD := wantRcode(dns.RcodeRefused, false)
	refusedRD.flags |= bitRD
	notImp := func(op uint16) wantAnswer { return wantAnswer{rcode: dns.RcodeNotImplemented, flags: op << 11} }
	rules := []protocolRule{
		{"plain", q, wantOK(1, false)},
		{"a response is never answered", setFlags(q, bitQR), wantAnswer{silent: true}},
		{"a response with an unknown opcode is never answered", setFlags(q, bitQR|15<<11), wantAnswer{silent: true}},
		{"shorter than a header", q[:11], wantAnswer{silent: true}},
		{"empty", nil, wantAnswer{silent: true}},
		{"RD is copied", setFlags(q, bitRD), rd},
		{"RD is copied into a refusal, AA is not set", setFlags(refused, bitRD), refusedRD},
		{"CD is copied", setFlags(q, bitCD), cd},
		{"AD is not ours to set", setFlags(q, bitAD), wantOK(1, false)},
		{"AA in a query is ignored", setFlags(q, bitAA), wantOK(1, false)},
		{"RA in a query is ignored", setFlags(q, bitRA), wantOK(1, false)},
		{"TC in a query is ignored", setFlags(q, bitTC), wantOK(1, false)},
		{"Z in a query is ignored", setFlags(q, bitZ), wantOK(1, false)},
		{"rcode in a query is ignored", setFlags(q, 5), wantOK(1, false)},
		{"opcode 15 with a header alone", []byte{0x12, 0x34, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0}, notImp(15)},
		{"a body of another opcode is not read", append(slices.Clone(setFlags(q, 6<<11)), 1, 2, 3), notImp(6)},
	}
	for op := uint16(1); op < 16; op++ {
		name := "opcode " + string('a'+rune(op)-1)
		rules = append(rules,
			protocolRule{name + " is not implemented, question empty", setFlags(q, op<<11), notImp(op)},
			protocolRule{name + " copies no flag", setFlags(q, op<<11|bitRD|bitRA|bitAD|bitCD|bitAA|bitTC|bitZ), notImp(op)})
	}
	return rules
}

func bodyRules() []protocolRule {
	q := plainQuery("chat.api.example.", dns.TypeA)
	count := func(at int, n byte) []byte { return modifyCopy(q, func(b []byte) { b[at] = n }) }
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
		return modifyCopy(q, func(b []byte) { binary.BigEndian.PutUint16(b[len(b)-2:], c) })
	}
	return []protocolRule{
		{"no question", none, wantAnswer{rcode: dns.RcodeFormatError}},
		{"two questions", two, wantRcode(dns.RcodeFormatError, false)},
		{"trailing garbage", append(slices.Clone(q), 1), wantRcode(dns.RcodeFormatError, false)},
		{"trailing garbage behind an OPT", append(appendOPT(q, 1232, 0, nil), 1), wantRcode(dns.RcodeFormatError, true)},
		{"a record is announced that is not there", count(11, 1), wantRcode(dns.RcodeFormatError, false)},
		{"an answer is announced that is not there", count(7, 1), wantRcode(dns.RcodeFormatError, false)},
		{"QNAME points at itself", loop, wantAnswer{silent: true}},
		{"QNAME points into the header", back, wantAnswer{silent: true}},
		{"QNAME is longer than 255", long, wantAnswer{silent: true}},
		{"QNAME label type 01", modifyCopy(q, func(b []byte) { b[12] = 0x41 }), wantAnswer{silent: true}},
		{"cut off in QNAME", q[:15], wantAnswer{silent: true}},
		{"cut off in QTYPE", q[:len(q)-3], wantAnswer{silent: true}},
		{"class ANY", class(dns.ClassANY), wantRcode(dns.RcodeRefused, false)},
		{"class NONE", class(dns.ClassNONE), wantRcode(dns.RcodeRefused, false)},
		{"class HS", class(dns.ClassHESIOD), wantRcode(dns.RcodeRefused, false)},
		{"class CH for a service", class(dns.ClassCHAOS), wantRcode(dns.RcodeRefused, false)},
		{"id.server in CH", chaosQuery("id.server."), wantOK(1, false)},
		{"hostname.bind in CH", chaosQuery("HOSTNAME.bind."), wantOK(1, false)},
		{"version.bind in CH", chaosQuery("version.bind."), wantRcode(dns.RcodeRefused, false)},
	}
}

func chaosQuery(name string) []byte {
	return appendQuestion([]byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, name, dns.TypeTXT, dns.ClassCHAOS)
}

func ednsRules() []protocolRule {
	q := plainQuery("chat.api.example.", dns.TypeA)
	out := plainQuery("elsewhere.example.", dns.TypeA)
	none := plainQuery("none.api.example.", dns.TypeA)
	nx := wantNoData(true)
	nx.rcode = dns.RcodeNameError
	ownerOPT := append(modifyCopy(q, func(b []byte) { b[11] = 1 }), 1, 'x', 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0)
	early := append(modifyCopy(q, func(b []byte) { b[7] = 1 }), 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0)
	return []protocolRule{
		{"OPT is answered by ours", appendOPT(q, 4096, 0, nil), wantOK(1, true).withCheck(checkPlainOPT)},
		{"OPT in a refusal", appendOPT(out, 4096, 0, nil), wantRcode(dns.RcodeRefused, true).withCheck(checkPlainOPT)},
		{"OPT in NXDOMAIN", appendOPT(none, 4096, 0, nil), nx.withCheck(checkPlainOPT)},
		{"DO is copied", appendOPT(q, 4096, bitDO, nil), wantOK(1, true).withCheck(func(t *testing.T, m *dns.Msg, _ []byte) {
			if !m.IsEdns0().Do() {
				t.Error("DO was not copied")
			}
		})},
		{"AD stays clear with DO", setFlags(appendOPT(q, 4096, bitDO, nil), bitAD), wantOK(1, true)},
		{"unknown EDNS flags are cleared", appendOPT(q, 4096, 0x7fff, nil), wantOK(1, true).withCheck(checkPlainOPT)},
		{"unknown options are not echoed", appendOPT(q, 4096, 0, encodeOption(100, 1, 2, 3)), wantOK(1, true).withCheck(checkPlainOPT)},
		{"payload 0 counts as 512", appendOPT(q, 0, 0, nil), wantOK(1, true).withCheck(checkPlainOPT)},
		{"version 1", appendOPT(q, 4096, 1<<16, nil), wantRcode(dns.RcodeBadVers, true).withCheck(checkPlainOPT)},
		{"version 255 with DO", appendOPT(q, 4096, 255<<16|bitDO, nil), wantRcode(dns.RcodeBadVers, true)},
		{
			"version 1 with unknown options", appendOPT(q, 4096, 1<<16, encodeOption(8, 9)),
			wantRcode(dns.RcodeBadVers, true).withCheck(checkPlainOPT),
		},
		{"two OPT", appendOPT(appendOPT(q, 4096, 0, nil), 4096, 0, nil), wantRcode(dns.RcodeFormatError, true)},
		{"OPT with an owner", ownerOPT, wantRcode(dns.RcodeFormatError, false)},
		{"OPT in the answer section", early, wantRcode(dns.RcodeFormatError, false)},
		{"an option runs over the OPT's end", appendOPT(q, 4096, 0, []byte{0, 100, 0, 5, 1}), wantRcode(dns.RcodeFormatError, true)},
		{"half an option", appendOPT(q, 4096, 0, []byte{0, 100, 0}), wantRcode(dns.RcodeFormatError, true)},
		{"NSID", appendOPT(q, 4096, 0, encodeOption(3)), wantOK(1, true).withCheck(func(t *testing.T, m *dns.Msg, _ []byte) {
			o := m.IsEdns0().Option
			if len(o) != 1 || o[0].String() != "6731" { // "g1"
				t.Errorf("options %v, want the NSID", o)
			}
		})},
		{"NSID with data", appendOPT(q, 4096, 0, encodeOption(3, 1)), wantRcode(dns.RcodeFormatError, true)},
		{"cookie of 8", appendOPT(q, 4096, 0, encodeOption(10, make([]byte, 8)...)), wantOK(1, true).withCheck(checkPlainOPT)},
		{"cookie of 24", appendOPT(q, 4096, 0, encodeOption(10, make([]byte, 24)...)), wantOK(1, true).withCheck(checkPlainOPT)},
		{"cookie of 7", appendOPT(q, 4096, 0, encodeOption(10, make([]byte, 7)...)), wantRcode(dns.RcodeFormatError, true)},
		{"cookie of 9", appendOPT(q, 4096, 0, encodeOption(10, make([]byte, 9)...)), wantRcode(dns.RcodeFormatError, true)},
		{"cookie of 41", appendOPT(q, 4096, 0, encodeOption(10, make([]byte, 41)...)), wantRcode(dns.RcodeFormatError, true)},
		{"padding is not echoed", appendOPT(q, 4096, 0, encodeOption(12, make([]byte, 700)...)), wantOK(1, true).withCheck(checkPlainOPT)},
		{
			"opcode with OPT", setFlags(appendOPT(q, 4096, 0, nil), 5<<11),
			wantAnswer{rcode: dns.RcodeNotImplemented, flags: 5 << 11, opt: true, check: checkPlainOPT},
		},
	}
}

// checkPlainOPT checks that the answer's OPT has version 0, our size, no flag and no option.
func checkPlainOPT(t *testing.T, m *dns.Msg, _ []byte) {
	t.Helper()
	o := m.IsEdns0()
	if o.Version() != 0 || o.UDPSize() != 1232 || o.Hdr.Ttl&0xffffff != 0 || len(o.Option) != 0 {
		t.Errorf("OPT %v ttl %08x", o, o.Hdr.Ttl)
	}
}

func nameRules() []protocolRule {
	nx := wantNoData(false)
	nx.rcode = dns.RcodeNameError
	mixed := plainQuery("ChAt.aPi.ExAmPlE.", dns.TypeA)
	return []protocolRule{
		{"QNAME comes back byte by byte (0x20)", mixed, wantOK(1, false).withCheck(func(t *testing.T, m *dns.Msg, raw []byte) {
			if !bytes.Equal(raw[12:len(mixed)], mixed[12:]) {
				t.Errorf("question %x, want %x", raw[12:len(mixed)], mixed[12:])
			}
			if m.Answer[0].Header().Name != "ChAt.aPi.ExAmPlE." {
				t.Errorf("owner %q", m.Answer[0].Header().Name)
			}
		})},
		{"out of zone", plainQuery("api.example.org.", dns.TypeA), wantRcode(dns.RcodeRefused, false)},
		{"the parent", plainQuery("example.", dns.TypeSOA), wantRcode(dns.RcodeRefused, false)},
		{"the root", plainQuery(".", dns.TypeNS), wantRcode(dns.RcodeRefused, false)},
		{"a name that merely ends alike", plainQuery("xapi.example.", dns.TypeA), wantRcode(dns.RcodeRefused, false)},
		{"nothing there", plainQuery("none.api.example.", dns.TypeA), nx.withCheck(checkNegativeSOA)},
		{"nothing there, ANY", plainQuery("none.api.example.", dns.TypeANY), nx},
		{"nothing below a service", plainQuery("x.idle.api.example.", dns.TypeA), nx},
		{"a region's child name", plainQuery("eu.chat.api.example.", dns.TypeA), wantOK(1, false)},
		{"empty non-terminal above a service", plainQuery("deep.api.example.", dns.TypeA), wantNoData(false).withCheck(checkNegativeSOA)},
		{"empty non-terminal above a name server", plainQuery("dns.api.example.", dns.TypeA), wantNoData(false)},
		{"a name server's own address", plainQuery("ns1.dns.api.example.", dns.TypeA), wantOK(1, false)},
		{"a name server's own IPv6 address", plainQuery("NS1.dns.api.example.", dns.TypeAAAA), wantOK(1, false)},
		{"no region to send to is NODATA", plainQuery("idle.api.example.", dns.TypeA), wantNoData(false).withCheck(checkNegativeSOA)},
		{"AAAA of an IPv4 name is NODATA", plainQuery("chat.api.example.", dns.TypeAAAA), wantNoData(false)},
		{"A of an IPv6 name is NODATA", plainQuery("six.deep.api.example.", dns.TypeA), wantNoData(false)},
		{"AAAA", plainQuery("six.deep.api.example.", dns.TypeAAAA), wantOK(1, false)},
		{"apex has no address", plainQuery("api.example.", dns.TypeA), wantNoData(false)},
		{"why of nothing", plainQuery("_why.none.api.example.", dns.TypeTXT), nx},
		{"why has no address", plainQuery("_why.chat.api.example.", dns.TypeA), wantNoData(false)},
		{"whoami of a service is nothing", plainQuery("_whoami.chat.api.example.", dns.TypeTXT), nx},
	}
}

// checkNegativeSOA checks that a negative answer is cached for the smaller of the SOA's TTL and MINIMUM.
func checkNegativeSOA(t *testing.T, m *dns.Msg, _ []byte) {
	t.Helper()
	soa := m.Ns[0].(*dns.SOA)
	if soa.Hdr.Ttl != 30 || soa.Minttl != 30 || soa.Hdr.Name != "api.example." {
		t.Errorf("authority %v", soa)
	}
}

func typeRules() []protocolRule {
	txt := func(lines ...string) func(*testing.T, *dns.Msg, []byte) {
		return func(t *testing.T, m *dns.Msg, _ []byte) {
			t.Helper()
			rr := m.Answer[0].(*dns.TXT)
			if !slices.Equal(rr.Txt, lines) || rr.Hdr.Ttl != 0 {
				t.Errorf("TXT %q ttl %d, want %q and 0", rr.Txt, rr.Hdr.Ttl, lines)
			}
		}
	}
	rules := []protocolRule{
		{"SOA", plainQuery("api.example.", dns.TypeSOA), wantOK(1, false).withCheck(func(t *testing.T, m *dns.Msg, _ []byte) {
			soa := m.Answer[0].(*dns.SOA)
			if soa.Serial != 7 || soa.Hdr.Ttl != 3600 || soa.Ns != "ns1.dns.api.example." || soa.Mbox != "hostmaster.api.example." {
				t.Errorf("SOA %v", soa)
			}
		})},
		{"NS with glue", appendOPT(plainQuery("api.example.", dns.TypeNS), 1232, 0, encodeOption(12, make([]byte, 60)...)), wantOK(2, true).withCheck(func(t *testing.T, m *dns.Msg, _ []byte) {
			if len(m.Extra) != 3 { // of the name server within the zone, and the OPT
				t.Errorf("additional %v", m.Extra)
			}
		})},
		{"SOA below the apex is NODATA", plainQuery("chat.api.example.", dns.TypeSOA), wantNoData(false)},
		{"NS below the apex is NODATA", plainQuery("chat.api.example.", dns.TypeNS), wantNoData(false)},
		{"ANY is one HINFO", plainQuery("chat.api.example.", dns.TypeANY), wantOK(1, false).withCheck(func(t *testing.T, m *dns.Msg, _ []byte) {
			h, is := m.Answer[0].(*dns.HINFO)
			if !is || h.Cpu != "RFC8482" || h.Os != "" || h.Hdr.Ttl != 3600 {
				t.Errorf("answer %v", m.Answer)
			}
		})},
		{
			"why", plainQuery("_why.chat.api.example.", dns.TypeTXT),
			wantOK(1, false).withCheck(txt("region=eu", `quote=\"\\`, "client=127.0.0.1")),
		},
		{"whoami", plainQuery("_WHOAMI.api.example.", dns.TypeTXT), wantOK(1, false).withCheck(txt("client=127.0.0.1"))},
		{"AXFR", plainQuery("api.example.", dns.TypeAXFR), wantRcode(dns.RcodeRefused, false)},
		{"IXFR", plainQuery("api.example.", dns.TypeIXFR), wantRcode(dns.RcodeRefused, false)},
	}
	for _, other := range []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCAA, dns.TypeMX, dns.TypeDNSKEY, 65280} {
		rules = append(rules, protocolRule{
			fmt.Sprintf("type %d is NODATA", other), plainQuery("chat.api.example.", other), wantNoData(false),
		})
	}
	for _, meta := range []uint16{dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB} {
		rules = append(rules, protocolRule{
			"meta type " + dns.TypeToString[meta],
			plainQuery("chat.api.example.", meta), wantRcode(dns.RcodeNotImplemented, false),
		})
	}
	for _, absent := range []uint16{
		0, dns.TypeMX, dns.TypeTXT, dns.TypeCNAME, dns.TypeHTTPS, dns.TypeCAA, dns.TypeDS,
		dns.TypeDNSKEY, dns.TypeHINFO, 666, 65280,
	} {
		rules = append(rules, protocolRule{
			"absent " + dns.Type(absent).String(),
			plainQuery("chat.api.example.", absent), wantNoData(false),
		})
	}
	return rules
}

func newTestHandler(w Snapshot) *handler {
	return &handler{snapshot: func() Snapshot { return w }, nsid: "g1", explain: true, tcpIdle: 100}
}

// askHandler passes one message through the slow path.
func askHandler(t *testing.T, h *handler, msg []byte, by Transport) *dns.Msg {
	t.Helper()
	out, _, ok := h.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, defaultAddr, by)
	if !ok {
		t.Fatalf("no answer to %x", msg)
	}
	return unpackMessage(t, out)
}

// findOption returns the data of the answer's option, or nil.
func findOption(t *testing.T, m *dns.Msg, code uint16) []byte {
	t.Helper()
	raw, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	at := findOPT(raw, skipName(raw, headerLen)+4)
	r, _, ok := readRecord(raw, at)
	if at < 0 || !ok {
		t.Fatalf("no OPT in %x", raw)
	}
	for data := r.data; len(data) >= 4; {
		n := int(binary.BigEndian.Uint16(data[2:]))
		if binary.BigEndian.Uint16(data) == code {
			return append([]byte{}, data[4:4+n]...)
		}
		data = data[4+n:]
	}
	return nil
}

func TestServiceBindingsAreSteeredAsAddresses(t *testing.T) {
	w := newFakeSnapshot()
	w.httpsPort = 8443
	h := newTestHandler(w)
	for _, qtype := range []uint16{dns.TypeHTTPS, dns.TypeSVCB} {
		for subnet, want := range map[byte]netip.Addr{81: euAddr, 82: defaultAddr} {
			q := appendOPT(plainQuery("chat.api.example.", qtype), 1232, 0, encodeSubnet(1, 24, 0, subnet, 2, 69))
			m := askHandler(t, h, q, UDP)
			a := askHandler(t, h, modifyCopy(q, func(b []byte) { binary.BigEndian.PutUint16(b[30:], dns.TypeA) }), UDP)
			var got *dns.SVCB
			switch rr := m.Answer[0].(type) {
			case *dns.HTTPS:
				got = &rr.SVCB
			case *dns.SVCB:
				got = rr
			}
			text := got.String()
			if got.Priority != 1 || got.Target != "." || !bytes.Contains([]byte(text), []byte(`ipv4hint="`+want.String()+`"`)) ||
				!bytes.Contains([]byte(text), []byte(`port="8443"`)) || !bytes.Contains([]byte(text), []byte(`alpn="h2"`)) {
				t.Errorf("%d.2.69.0/24: %s, want a hint of %s", subnet, text, want)
			}
			if got.Hdr.Ttl != a.Answer[0].Header().Ttl || findSubnet(m).SourceScope != findSubnet(a).SourceScope || a.Answer[0].(*dns.A).A.String() != want.String() {
				t.Errorf("A %v and binding %v differ", a, m)
			}
		}
	}
	w.httpsPort = 0
	if m := askHandler(t, h, plainQuery("chat.api.example.", dns.TypeHTTPS), UDP); len(m.Answer) != 0 || len(m.Ns) != 1 {
		t.Errorf("gateways without TLS: %v", m)
	}
}

func TestCAAIsAnsweredAtTheApex(t *testing.T) {
	w := newFakeSnapshot()
	w.zone.CAA = []CAA{{0, "issue", "letsencrypt.org"}, {128, "iodef", `mailto:a"b@example.com`}}
	h := newTestHandler(w)
	m := askHandler(t, h, plainQuery("api.example.", dns.TypeCAA), TCP)
	if len(m.Answer) != 2 {
		t.Fatalf("got %v", m)
	}
	first, second := m.Answer[0].(*dns.CAA), m.Answer[1].(*dns.CAA)
	if first.Tag != "issue" || first.Value != "letsencrypt.org" || second.Flag != 128 || second.Value != `mailto:a"b@example.com` {
		t.Errorf("got %v and %v", first, second)
	}
	// A CA climbs from the service to the apex, so NODATA below is as good as the record.
	if m := askHandler(t, h, plainQuery("chat.api.example.", dns.TypeCAA), UDP); len(m.Answer) != 0 || m.Rcode != dns.RcodeSuccess {
		t.Errorf("below the apex: %v", m)
	}
}

func TestZoneVersionIsTheSerial(t *testing.T) {
	h := newTestHandler(newFakeSnapshot())
	for _, name := range []string{"chat.api.example.", "nope.api.example."} {
		m := askHandler(t, h, appendOPT(plainQuery(name, dns.TypeA), 1232, 0, encodeOption(19)), UDP)
		if got := hex.EncodeToString(findOption(t, m, 19)); got != "020000000007" { // two labels, type SOA-SERIAL, 7
			t.Errorf("%s: %s", name, got)
		}
	}
	if m := askHandler(t, h, appendOPT(plainQuery("elsewhere.example.", dns.TypeA), 1232, 0, encodeOption(19)), UDP); findOption(t, m, 19) != nil {
		t.Errorf("a refusal carries a version: %v", m)
	}
	if m := askHandler(t, h, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(19, 1)), UDP); m.Rcode != dns.RcodeFormatError {
		t.Errorf("a query that states a version: %v", m)
	}
}

func TestExtendedErrorsOfStaleAndForcedAnswers(t *testing.T) {
	w := newStaticSnapshot()
	h := newTestHandler(w)
	for _, c := range []struct {
		stale, forced bool
		want          string
	}{{false, false, ""}, {true, false, "0003"}, {false, true, "0004"}, {true, true, "0003"}} {
		w.answer.Stale, w.answer.ForcedByDrain = c.stale, c.forced
		m := askHandler(t, h, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil), UDP)
		if got := hex.EncodeToString(findOption(t, m, 15)); got != c.want {
			t.Errorf("stale %v, forced %v: %q, want %q", c.stale, c.forced, got, c.want)
		}
		if m := askHandler(t, h, plainQuery("chat.api.example.", dns.TypeA), UDP); m.IsEdns0() != nil || len(m.Answer) != 1 {
			t.Errorf("without EDNS: %v", m)
		}
	}
}

func TestDebugNamesCanBeTurnedOff(t *testing.T) {
	h := newTestHandler(newFakeSnapshot())
	if m := askHandler(t, h, plainQuery("_view.api.example.", dns.TypeTXT), UDP); len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != "plan_epoch=3" {
		t.Errorf("_view: %v", m)
	}
	for _, name := range []string{"_view.api.example.", "_whoami.api.example.", "_why.chat.api.example."} {
		h.explain = true
		if m := askHandler(t, h, plainQuery(name, dns.TypeTXT), UDP); m.Rcode != dns.RcodeSuccess || m.Answer[0].Header().Ttl != 0 {
			t.Errorf("%s: %v", name, m)
		}
		h.explain = false
		if m := askHandler(t, h, plainQuery(name, dns.TypeTXT), UDP); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s, turned off: %v", name, m)
		}
	}
}

func TestVersionIsAnsweredOnlyWhenConfigured(t *testing.T) {
	h := newTestHandler(newFakeSnapshot())
	h.version = "spillway 1"
	for _, name := range []string{"version.bind.", "version.server."} {
		if m := askHandler(t, h, chaosQuery(name), UDP); len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != "spillway 1" {
			t.Errorf("%s: %v", name, m)
		}
	}
	h.version, h.nsid = "", ""
	for _, name := range []string{"version.bind.", "id.server."} {
		if m := askHandler(t, h, chaosQuery(name), UDP); m.Rcode != dns.RcodeRefused {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// TestCookieExchange acts like a resolver: the first query has only the client cookie, the next the returned server
// cookie.
func TestCookieExchange(t *testing.T) {
	w := newFakeSnapshot()
	secret := CookieSecret{7}
	s := startServer(t, w, func(c *Config) { c.CookieSecrets = func() []CookieSecret { return []CookieSecret{secret} } })
	own := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, name := range []string{"chat.api.example.", "nope.api.example."} { // the fast and the slow path
		q := plainQuery(name, dns.TypeA)
		given := findOption(t, unpackMessage(t, exchangeUDP(t, s, appendOPT(q, 1232, 0, encodeOption(10, own...)))), 10)
		if len(given) != 24 || !bytes.Equal(given[:8], own) {
			t.Fatalf("%s: cookie %x", name, given)
		}
		again := findOption(t, unpackMessage(t, exchangeUDP(t, s, appendOPT(q, 1232, 0, encodeOption(10, given...)))), 10)
		if !bytes.Equal(again, given) {
			t.Errorf("%s: cookie %x became %x", name, given, again)
		}
	}
	empty := appendOPT([]byte{0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1232, 0, encodeOption(10, own...))
	if m := new(dns.Msg); m.Unpack(exchangeUDP(t, s, empty)) != nil || m.Rcode != dns.RcodeSuccess || len(m.Question) != 0 || len(m.IsEdns0().Option) != 1 {
		t.Errorf("a query for a cookie only (RFC 7873, 5.4): %v", m)
	}
}

// TestClientWithACookieGetsFullAnswers checks that only answers to unverified addresses are shortened.
func TestClientWithACookieGetsFullAnswers(t *testing.T) {
	w := newFakeSnapshot()
	w.addrCount = 20
	p := newPathPair(w)
	c := parseClientCookie(t, "0102030405060708")
	given, _ := c.checkCookie(p.slow.secrets(), defaultAddr, time.Now())
	for cookie, want := range map[string]int{string(given.data[:]): 20, string(given.data[:23]) + "x": 9} {
		msg := appendOPT(plainQuery("wide.api.example.", dns.TypeA), 1232, 0, encodeOption(10, []byte(cookie)...))
		if !p.checkAgree(t, msg, defaultAddr) {
			t.Fatal("declined")
		}
		if m := askHandler(t, &p.slow, msg, UDP); len(m.Answer) != want {
			t.Errorf("%d addresses, want %d", len(m.Answer), want)
		}
	}
}
