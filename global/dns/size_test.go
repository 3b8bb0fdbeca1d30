package dns

import (
	"encoding/binary"
	"testing"

	"github.com/miekg/dns"
)

// TestAddressesOverUDPAreNoAmplifier asks for many more addresses than may be sent to somebody who has proven nothing.
func TestAddressesOverUDPAreNoAmplifier(t *testing.T) {
	v4, v6 := query1("wide.api.example.", dns.TypeA), query1("wide.api.example.", dns.TypeAAAA)
	for _, c := range []struct {
		name string
		raw  []byte
		many int
		want int // records over UDP
	}{
		{"few are sent whole", v4, 4, 4},
		{"no EDNS", v4, 100, 4}, // (3*34-34)/16
		{"AAAA, no EDNS", v6, 100, 2},
		{"EDNS 4096", edns(v4, 4096, 0, nil), 100, 5},
		{"EDNS 512", edns(v4, 512, 0, nil), 100, 5},
		{"EDNS below 512 counts as 512", edns(v4, 100, 0, opt1(12, make([]byte, 600)...)), 100, 29},
		{"a padded query earns a longer answer", edns(v4, 4096, 0, opt1(12, make([]byte, 200)...)), 100, 43},
		{"and no longer than 1232", edns(v4, 65535, 0, opt1(12, make([]byte, 1000)...)), 100, 74},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.many = c.many
			s := start(t, w, nil)
			raw := exchangeUDP(t, s, c.raw)
			m := unpack(t, raw)
			if m.Truncated || len(m.Answer) != c.want || len(raw) > maxGain*len(c.raw) || len(raw) > ourSize {
				t.Fatalf("%d bytes for %d, %d addresses, truncated %v; want %d addresses", len(raw), len(c.raw), len(m.Answer), m.Truncated, c.want)
			}
			if asked := len(c.raw) > len(v4); (m.IsEdns0() != nil) != asked {
				t.Errorf("OPT %v, want one: %v", m.IsEdns0(), asked)
			}
			if whole := unpack(t, exchangeTCP(t, s, c.raw)); whole.Truncated || len(whole.Answer) != c.many {
				t.Errorf("over TCP %d answers, truncated %v; want all %d", len(whole.Answer), whole.Truncated, c.many)
			}
		})
	}
}

func TestEveryAddressGetsItsTurn(t *testing.T) {
	w := newWorld()
	h := handler{view: func() View { return w }, debug: true}
	seen := map[string]int{}
	raw := query1("wide.api.example.", dns.TypeA)
	for id := range 2000 {
		binary.BigEndian.PutUint16(raw, uint16(id))
		out, _, _ := h.handle(nil, raw, home, UDP)
		for _, rr := range unpack(t, out).Answer {
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

// TestNothingIsAnAmplifier asks every name for every common type in the shortest way there is.
func TestNothingIsAnAmplifier(t *testing.T) {
	w := newWorld()
	h := handler{view: func() View { return w }, debug: true}
	names := []string{"api.example.", "nope.api.example.", "deep.api.example.", "_whoami.api.example.", "_why.chat.api.example.", "example.", "ns1.dns.api.example."}
	for name := range w.names {
		names = append(names, name)
	}
	for _, name := range names {
		for _, qtype := range []uint16{1, 2, 5, 6, 12, 15, 16, 28, 33, 41, 43, 48, 64, 65, 252, 255, 257} {
			for _, raw := range [][]byte{query1(name, qtype), edns(query1(name, qtype), 4096, 0, nil)} {
				out, _, _ := h.handle(nil, raw, home, UDP)
				if len(out) > maxGain*len(raw) {
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
	}{{10, false}, {12, true}} { // 41 octets each, behind 55 of header, question and record
		w := newWorld()
		w.lines = c.lines
		s := start(t, w, nil)
		raw := edns(query1("_why.chat.api.example.", dns.TypeTXT), 4096, 0, nil)
		m := unpack(t, exchangeUDP(t, s, raw))
		if m.Truncated != c.truncated || (len(m.Answer) == 0) != c.truncated || m.IsEdns0() == nil {
			t.Errorf("%d lines over UDP: %v", c.lines, m)
		}
		if m = unpack(t, exchangeTCP(t, s, raw)); m.Truncated || len(m.Answer) != 1 || len(m.Answer[0].(*dns.TXT).Txt) != c.lines {
			t.Errorf("%d lines over TCP: %v", c.lines, m)
		}
	}
}

func TestGlueIsLeftOutBeforeAnythingIsTruncated(t *testing.T) {
	w := newWorld()
	for range 40 {
		w.zone.NS[0].Addrs = append(w.zone.NS[0].Addrs, w.zone.NS[0].Addrs[1])
	}
	s := start(t, w, nil)
	m := unpack(t, exchangeUDP(t, s, edns(query1("api.example.", dns.TypeNS), 512, 0, nil)))
	if m.Truncated || len(m.Answer) != 2 || len(m.Extra) != 1 || m.IsEdns0() == nil {
		t.Errorf("want both names, the OPT and no glue; got %v", m)
	}
}

func TestPaddedQueryIsRead(t *testing.T) {
	s := start(t, newWorld(), nil)
	raw := edns(query1("chat.api.example.", dns.TypeA), 1232, 0, opt1(12, make([]byte, 3000)...))
	if m := unpack(t, exchangeUDP(t, s, raw)); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
}
