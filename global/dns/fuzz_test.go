package dns

import (
	"encoding/binary"
	"net/netip"
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
