package dns

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// FuzzQuery checks that no message makes the handler panic, that responses are never answered, and that every answer
// is a well-formed one to that message, within its size.
func FuzzQuery(f *testing.F) {
	q := plainQuery("chat.api.example.", dns.TypeA)
	for _, b := range [][]byte{
		q, appendOPT(q, 1232, 0, encodeSubnet(1, 24, 0, 81, 2, 69)), appendOPT(q, 1232, bitDO, encodeOption(10, make([]byte, 24)...)),
		plainQuery("_why.chat.api.example.", dns.TypeTXT), plainQuery("api.example.", dns.TypeNS),
		setFlags(q, 4<<11), setFlags(q, bitQR),
		{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1},
		chaosQuery("id.server."), plainQuery("wide.api.example.", dns.TypeA),
	} {
		f.Add(b, false)
		f.Add(b, true)
	}
	w := newFakeSnapshot()
	h := handler{snapshot: func() Snapshot { return w }, nsid: "g1", explain: true, tcpIdle: 100}
	signed := newFakeSnapshot().signWith(f, CDSPublish, newTestKey(f, 1))
	hs := handler{snapshot: func() Snapshot { return signed }, nsid: "g1", explain: true, tcpIdle: 100}
	from := netip.MustParseAddr("192.0.2.9")
	f.Fuzz(func(t *testing.T, msg []byte, tcp bool) {
		if out, _, ok := hs.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, from, transportFor(tcp)); ok {
			if err := new(dns.Msg).Unpack(out); err != nil || !tcp && len(out) > maxUDPSize {
				t.Fatalf("signed answer %x to %x: %v", out, msg, err)
			}
		}
		out, event, ok := h.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, from, transportFor(tcp))
		if !ok {
			if event.Rcode != RcodeDropped {
				t.Fatalf("dropped, and event %+v", event)
			}
			return
		}
		if len(msg) < 12 || msg[2]&0x80 != 0 {
			t.Fatalf("answered %x", msg)
		}
		if out[0] != msg[0] || out[1] != msg[1] || out[2]&0x80 == 0 || out[2]&0x78 != msg[2]&0x78 {
			t.Fatalf("header %x answers %x", out[:4], msg[:4])
		}
		if limit := maxUDPSize; !tcp && len(out) > limit {
			t.Fatalf("%d bytes over UDP", len(out))
		}
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil {
			t.Fatalf("answer %x to %x: %v", out, msg, err)
		}
		if m.Zero || m.RecursionAvailable || m.AuthenticatedData {
			t.Fatalf("flags of %v", m)
		}
		if m.Rcode == dns.RcodeSuccess && (!m.Authoritative || binary.BigEndian.Uint16(msg[4:]) != 1) {
			t.Fatalf("NOERROR without authority: %v", m)
		}
	})
}

func transportFor(tcp bool) Transport {
	if tcp {
		return TCP
	}
	return UDP
}

func BenchmarkHandle(b *testing.B) {
	w := newFakeSnapshot()
	h := handler{snapshot: func() Snapshot { return w }, nsid: "g1", explain: true, tcpIdle: 100}
	msg := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeSubnet(1, 24, 0, 81, 2, 69))
	from := netip.MustParseAddr("192.0.2.9")
	buf := make([]byte, 2*maxUDPSize)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := h.handleMessage(buf, msg, from, UDP); !ok {
			b.Fatal("no answer")
		}
	}
}

// TestUDPAddressesDoNotAmplify queries a name with many more addresses than may be sent to an unverified address.
func TestUDPAddressesDoNotAmplify(t *testing.T) {
	v4, v6 := plainQuery("wide.api.example.", dns.TypeA), plainQuery("wide.api.example.", dns.TypeAAAA)
	for _, c := range []struct {
		name string
		raw  []byte
		many int
		want int // records over UDP
	}{
		{"few are sent whole", v4, 4, 4},
		{"no EDNS", v4, 100, 4}, // (3*34-34)/16
		{"AAAA, no EDNS", v6, 100, 2},
		{"EDNS 4096", appendOPT(v4, 4096, 0, nil), 100, 5},
		{"EDNS 512", appendOPT(v4, 512, 0, nil), 100, 5},
		{"EDNS below 512 counts as 512", appendOPT(v4, 100, 0, encodeOption(12, make([]byte, 600)...)), 100, 29},
		{"a padded query earns a longer answer", appendOPT(v4, 4096, 0, encodeOption(12, make([]byte, 200)...)), 100, 43},
		{"and no longer than 1232", appendOPT(v4, 65535, 0, encodeOption(12, make([]byte, 1000)...)), 100, 74},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeSnapshot()
			w.addrCount = c.many
			s := startServer(t, w, nil)
			raw := exchangeUDP(t, s, c.raw)
			m := unpackMessage(t, raw)
			if m.Truncated || len(m.Answer) != c.want || len(raw) > maxAmplification*len(c.raw) || len(raw) > maxUDPSize {
				t.Fatalf("%d bytes for %d, %d addresses, truncated %v; want %d addresses", len(raw), len(c.raw), len(m.Answer), m.Truncated, c.want)
			}
			if asked := len(c.raw) > len(v4); (m.IsEdns0() != nil) != asked {
				t.Errorf("OPT %v, want one: %v", m.IsEdns0(), asked)
			}
			if whole := unpackMessage(t, exchangeTCP(t, s, c.raw)); whole.Truncated || len(whole.Answer) != c.many {
				t.Errorf("over TCP %d answers, truncated %v; want all %d", len(whole.Answer), whole.Truncated, c.many)
			}
		})
	}
}

func TestAddressesRotate(t *testing.T) {
	w := newFakeSnapshot()
	h := handler{snapshot: func() Snapshot { return w }, explain: true}
	seen := map[string]int{}
	raw := plainQuery("wide.api.example.", dns.TypeA)
	for id := range 2000 {
		binary.BigEndian.PutUint16(raw, uint16(id))
		out, _, _ := h.handleMessage(nil, raw, defaultAddr, UDP)
		for _, rr := range unpackMessage(t, out).Answer {
			seen[rr.String()]++
		}
	}
	for rr, n := range seen {
		if n != 2000*4/100 {
			t.Errorf("%s is answered %d times, want 80", rr, n)
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d addresses are answered, want all 100", len(seen))
	}
}

// TestNoAnswerAmplifies queries every name for every common type in the shortest possible message.
func TestNoAnswerAmplifies(t *testing.T) {
	w := newFakeSnapshot()
	h := handler{snapshot: func() Snapshot { return w }, explain: true}
	names := []string{"api.example.", "nope.api.example.", "deep.api.example.", "_whoami.api.example.", "_why.chat.api.example.", "example.", "ns1.dns.api.example."}
	for name := range w.names {
		names = append(names, name)
	}
	for _, name := range names {
		for _, qtype := range []uint16{1, 2, 5, 6, 12, 15, 16, 28, 33, 41, 43, 48, 64, 65, 252, 255, 257} {
			for _, raw := range [][]byte{plainQuery(name, qtype), appendOPT(plainQuery(name, qtype), 4096, 0, nil)} {
				out, _, _ := h.handleMessage(nil, raw, defaultAddr, UDP)
				if len(out) > maxAmplification*len(raw) {
					t.Errorf("%s %s: %d bytes for %d", name, dns.TypeToString[qtype], len(out), len(raw))
				}
			}
		}
	}
}

func TestLongExplanationsComeOverTCP(t *testing.T) {
	for _, c := range []struct {
		lines     int
		truncated bool
	}{{10, false}, {12, true}} { // 41 octets each, after 55 of header, question and record
		w := newFakeSnapshot()
		w.explainLines = c.lines
		s := startServer(t, w, nil)
		raw := appendOPT(plainQuery("_why.chat.api.example.", dns.TypeTXT), 4096, 0, nil)
		m := unpackMessage(t, exchangeUDP(t, s, raw))
		if m.Truncated != c.truncated || (len(m.Answer) == 0) != c.truncated || m.IsEdns0() == nil {
			t.Errorf("%d lines over UDP: %v", c.lines, m)
		}
		if m = unpackMessage(t, exchangeTCP(t, s, raw)); m.Truncated || len(m.Answer) != 1 || len(m.Answer[0].(*dns.TXT).Txt) != c.lines {
			t.Errorf("%d lines over TCP: %v", c.lines, m)
		}
	}
}

func TestGlueIsLeftOutBeforeAnythingIsTruncated(t *testing.T) {
	w := newFakeSnapshot()
	for range 40 {
		w.zone.NS[0].Addrs = append(w.zone.NS[0].Addrs, w.zone.NS[0].Addrs[1])
	}
	s := startServer(t, w, nil)
	m := unpackMessage(t, exchangeUDP(t, s, appendOPT(plainQuery("api.example.", dns.TypeNS), 512, 0, nil)))
	if m.Truncated || len(m.Answer) != 2 || len(m.Extra) != 1 || m.IsEdns0() == nil {
		t.Errorf("want both names, the OPT and no glue; got %v", m)
	}
}

func TestPaddedQueryIsRead(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	raw := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(12, make([]byte, 3000)...))
	if m := unpackMessage(t, exchangeUDP(t, s, raw)); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
}

// encodeSubnet returns raw Client Subnet data, because the library would correct what must reach the server
// unchanged.
func encodeSubnet(family uint16, source, scope byte, octets ...byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, family)
	return encodeOption(8, append(append(d, source, scope), octets...)...)
}

func TestMalformedSubnetIsRefused(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	q := plainQuery("chat.api.example.", dns.TypeA)
	cases := map[string][]byte{
		"family 0":                   encodeSubnet(0, 0, 0),
		"family 0 with a source":     encodeSubnet(0, 24, 0, 81, 2, 69),
		"family 3":                   encodeSubnet(3, 24, 0, 81, 2, 69),
		"source above 32":            encodeSubnet(1, 33, 0, 81, 2, 69, 1, 0),
		"source above 128":           encodeSubnet(2, 129, 0, make([]byte, 17)...),
		"scope in a query":           encodeSubnet(1, 24, 24, 81, 2, 69),
		"an octet too many":          encodeSubnet(1, 24, 0, 81, 2, 69, 0),
		"an octet too few":           encodeSubnet(1, 24, 0, 81, 2),
		"octets with source 0":       encodeSubnet(1, 0, 0, 81),
		"bits past source":           encodeSubnet(1, 20, 0, 81, 2, 0xf1),
		"bits past source, IPv6":     encodeSubnet(2, 33, 0, 0x20, 1, 0xd, 0xb8, 0x40),
		"shorter than its own fixed": encodeOption(8, 0, 1, 24),
		"empty":                      encodeOption(8),
		"twice":                      append(encodeSubnet(1, 24, 0, 81, 2, 69), encodeSubnet(1, 24, 0, 81, 2, 69)...),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			m := unpackMessage(t, exchangeUDP(t, s, appendOPT(q, 1232, 0, data)))
			if m.Rcode != dns.RcodeFormatError || m.IsEdns0() == nil || findSubnet(m) != nil || len(m.Answer) != 0 {
				t.Errorf("want FORMERR with a bare OPT, got %v", m)
			}
		})
	}
}

func TestSubnetSteersAndIsEchoed(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	cases := []struct {
		name   string
		qname  string
		qtype  uint16
		data   []byte
		scope  uint8
		answer string // address, or empty for none
	}{
		{"its client is steered by", "chat.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 21, euAddr.String()},
		{"scope may exceed source", "chat.api.example.", dns.TypeA, encodeSubnet(1, 8, 0, 81), 21, euAddr.String()},
		{"other client", "chat.api.example.", dns.TypeA, encodeSubnet(1, 20, 0, 8, 8, 0xf0), 19, defaultAddr.String()},
		{"IPv6", "chat.api.example.", dns.TypeA, encodeSubnet(2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0), 44, euAddr.String()},
		{"source 0 means the resolver, scope 0", "chat.api.example.", dns.TypeA, encodeSubnet(1, 0, 0), 0, defaultAddr.String()},
		{"source 0 of IPv6", "chat.api.example.", dns.TypeA, encodeSubnet(2, 0, 0), 0, defaultAddr.String()},
		{"not tailored", "eu.chat.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, euAddr.String()},
		{"negative", "chat.api.example.", dns.TypeAAAA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"no region", "idle.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"NXDOMAIN", "none.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"refused", "elsewhere.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"SOA", "api.example.", dns.TypeSOA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"NS", "api.example.", dns.TypeNS, encodeSubnet(2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1), 0, ""},
		{"why is for one address alone", "_why.chat.api.example.", dns.TypeTXT, encodeSubnet(1, 24, 0, 81, 2, 69), 32, ""},
		{"whoami is for one address alone", "_whoami.api.example.", dns.TypeTXT, encodeSubnet(2, 8, 0, 0x20), 128, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			raw := exchangeUDP(t, s, appendOPT(plainQuery(c.qname, c.qtype), 1232, 0, c.data))
			m := unpackMessage(t, raw)
			want := slices.Clone(c.data)
			want[7] = c.scope
			if !bytes.Contains(raw, want) {
				t.Errorf("answer %x does not echo %x", raw, want)
			}
			if a, is := firstA(m); c.answer != a || is != (c.answer != "") {
				t.Errorf("answer %q, want %q", a, c.answer)
			}
		})
	}
	t.Run("absent is never sent", func(t *testing.T) {
		m := unpackMessage(t, exchangeUDP(t, s, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil)))
		if findSubnet(m) != nil {
			t.Error("an option came that was not asked for")
		}
	})
	t.Run("not with another EDNS version", func(t *testing.T) {
		raw := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 1<<16, encodeSubnet(1, 24, 0, 81, 2, 69))
		if m := unpackMessage(t, exchangeUDP(t, s, raw)); findSubnet(m) != nil || m.Rcode != dns.RcodeBadVers {
			t.Errorf("got %v", m)
		}
	})
}

func firstA(m *dns.Msg) (string, bool) {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String(), true
		}
	}
	return "", false
}
