package dns

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// FuzzQuery holds that no message makes the handler panic, that responses are never answered, and that every answer is
// a well-formed one to that message, within its size.
func FuzzQuery(f *testing.F) {
	q := query1("chat.api.example.", dns.TypeA)
	for _, b := range [][]byte{
		q, edns(q, 1232, 0, ecs(1, 24, 0, 81, 2, 69)), edns(q, 1232, bitDO, opt1(10, make([]byte, 24)...)),
		query1("_why.chat.api.example.", dns.TypeTXT), query1("api.example.", dns.TypeNS),
		flags(q, 4<<11), flags(q, bitQR),
		{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1},
		chaosQuery("id.server."), query1("wide.api.example.", dns.TypeA),
	} {
		f.Add(b, false)
		f.Add(b, true)
	}
	w := newWorld()
	h := handler{view: func() View { return w }, nsid: "g1", debug: true, idle: 100}
	signed := newWorld().sign(f, ShowDS, newKey(f, 1))
	hs := handler{view: func() View { return signed }, nsid: "g1", debug: true, idle: 100}
	from := netip.MustParseAddr("192.0.2.9")
	f.Fuzz(func(t *testing.T, msg []byte, tcp bool) {
		if out, _, ok := hs.handle(make([]byte, 0, 2*ourSize), msg, from, transport(tcp)); ok {
			if err := new(dns.Msg).Unpack(out); err != nil || !tcp && len(out) > ourSize {
				t.Fatalf("signed answer %x to %x: %v", out, msg, err)
			}
		}
		out, event, ok := h.handle(make([]byte, 0, 2*ourSize), msg, from, transport(tcp))
		if !ok {
			if event.Rcode != Dropped {
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
		if limit := ourSize; !tcp && len(out) > limit {
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

func transport(tcp bool) Transport {
	if tcp {
		return TCP
	}
	return UDP
}

func BenchmarkHandle(b *testing.B) {
	w := newWorld()
	h := handler{view: func() View { return w }, nsid: "g1", debug: true, idle: 100}
	msg := edns(query1("chat.api.example.", dns.TypeA), 1232, 0, ecs(1, 24, 0, 81, 2, 69))
	from := netip.MustParseAddr("192.0.2.9")
	buf := make([]byte, 2*ourSize)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := h.handle(buf, msg, from, UDP); !ok {
			b.Fatal("no answer")
		}
	}
}
