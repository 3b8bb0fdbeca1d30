package dns

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
)

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
