package dns

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// TestAnswerIsWhatASocketGives asks a server that has no socket what another one is asked over UDP.
func TestAnswerIsWhatASocketGives(t *testing.T) {
	w := newWorld()
	s := start(t, w, nil)
	deaf, err := New(Config{Deaf: true, View: func() View { return w }})
	if err != nil {
		t.Fatal(err)
	}
	if len(deaf.Addrs()) != 0 {
		t.Errorf("it listens on %v", deaf.Addrs())
	}
	home := netip.MustParseAddr("127.0.0.1")
	for _, raw := range [][]byte{
		query1("chat.api.example.", dns.TypeA), edns(query1("chat.api.example.", dns.TypeAAAA), 1232, 0, nil),
		query1("api.example.", dns.TypeSOA), query1("nothing.api.example.", dns.TypeA), query1("elsewhere.", dns.TypeA),
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
