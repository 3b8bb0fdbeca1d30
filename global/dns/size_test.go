package dns

import (
	"encoding/binary"
	"testing"

	"github.com/miekg/dns"
)

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
