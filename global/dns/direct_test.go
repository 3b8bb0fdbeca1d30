package dns

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// TestDirectAnswerEqualsUDPAnswer sends the same queries to a server without a socket and to one over UDP.
func TestDirectAnswerEqualsUDPAnswer(t *testing.T) {
	w := newFakeSnapshot()
	s := startServer(t, w, nil)
	deaf, err := New(Config{NoSockets: true, Snapshot: func() Snapshot { return w }})
	if err != nil {
		t.Fatal(err)
	}
	if len(deaf.Addrs()) != 0 {
		t.Errorf("it listens on %v", deaf.Addrs())
	}
	home := netip.MustParseAddr("127.0.0.1")
	for _, raw := range [][]byte{
		plainQuery("chat.api.example.", dns.TypeA), appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, 0, nil),
		plainQuery("api.example.", dns.TypeSOA), plainQuery("nothing.api.example.", dns.TypeA), plainQuery("elsewhere.", dns.TypeA),
	} {
		got, ok := deaf.Answer(nil, raw, home)
		if want := exchangeUDP(t, s, raw); !ok || !bytes.Equal(got, want) {
			t.Errorf("answered %v\n%x, over UDP\n%x", ok, got, want)
		}
	}
	if got, ok := deaf.Answer(make([]byte, 0, 10), []byte("garbage"), home); ok {
		t.Errorf("garbage is answered %x", got)
	}
}
