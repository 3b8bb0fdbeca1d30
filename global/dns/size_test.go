package dns

import (
	"testing"

	"github.com/miekg/dns"
)

func TestSizeOverUDP(t *testing.T) {
	q := query1("wide.api.example.", dns.TypeA)
	for _, c := range []struct {
		name      string
		raw       []byte
		many      int
		limit     int
		truncated bool
	}{
		{"fits in 512 without EDNS", q, 29, 512, false},
		{"does not fit in 512 without EDNS", q, 31, 512, true},
		{"EDNS 512", edns(q, 512, 0, nil), 31, 512, true},
		{"EDNS below 512 counts as 512", edns(q, 100, 0, nil), 20, 512, false},
		{"EDNS 800", edns(q, 800, 0, nil), 40, 800, false},
		{"EDNS 4096 is capped at 1232", edns(q, 4096, 0, nil), 100, 1232, true},
		{"EDNS 65535 within 1232", edns(q, 65535, 0, nil), 70, 1232, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.many = c.many
			s := start(t, w, nil)
			raw := exchangeUDP(t, s, c.raw)
			m := unpack(t, raw)
			if len(raw) > c.limit || m.Truncated != c.truncated {
				t.Fatalf("%d bytes, truncated %v; want at most %d, truncated %v", len(raw), m.Truncated, c.limit, c.truncated)
			}
			if got := len(m.Answer); c.truncated && got != 0 || !c.truncated && got != c.many {
				t.Errorf("%d answers: a set is sent whole or not at all", got)
			}
			if asked := len(c.raw) > len(q); (m.IsEdns0() != nil) != asked {
				t.Errorf("OPT %v, want one: %v", m.IsEdns0(), asked)
			}
			whole := unpack(t, exchangeTCP(t, s, c.raw))
			if whole.Truncated || len(whole.Answer) != c.many {
				t.Errorf("over TCP %d answers, truncated %v; want all %d", len(whole.Answer), whole.Truncated, c.many)
			}
		})
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
