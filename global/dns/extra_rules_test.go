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

func soundHandler(w View) *handler {
	return &handler{view: func() View { return w }, nsid: "g1", debug: true, idle: 100}
}

// asked runs one message through the library's path.
func asked(t *testing.T, h *handler, msg []byte, by Transport) *dns.Msg {
	t.Helper()
	out, _, ok := h.handle(make([]byte, 0, 2*ourSize), msg, home, by)
	if !ok {
		t.Fatalf("no answer to %x", msg)
	}
	return unpack(t, out)
}

// optionOf is the data of the answer's option, or nil.
func optionOf(t *testing.T, m *dns.Msg, code uint16) []byte {
	t.Helper()
	raw, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	at := lastOPT(raw, skipName(raw, headerLen)+4)
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
	w := newWorld()
	w.https = 8443
	h := soundHandler(w)
	for _, qtype := range []uint16{dns.TypeHTTPS, dns.TypeSVCB} {
		for subnet, want := range map[byte]netip.Addr{81: euro, 82: home} {
			q := edns(query1("chat.api.example.", qtype), 1232, 0, ecs(1, 24, 0, subnet, 2, 69))
			m := asked(t, h, q, UDP)
			a := asked(t, h, with(q, func(b []byte) { binary.BigEndian.PutUint16(b[30:], dns.TypeA) }), UDP)
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
			if got.Hdr.Ttl != a.Answer[0].Header().Ttl || subnetOf(m).SourceScope != subnetOf(a).SourceScope || a.Answer[0].(*dns.A).A.String() != want.String() {
				t.Errorf("A %v and binding %v differ", a, m)
			}
		}
	}
	w.https = 0
	if m := asked(t, h, query1("chat.api.example.", dns.TypeHTTPS), UDP); len(m.Answer) != 0 || len(m.Ns) != 1 {
		t.Errorf("gateways without TLS: %v", m)
	}
}

func TestCAAStandsAtTheApex(t *testing.T) {
	w := newWorld()
	w.zone.CAA = []CAA{{0, "issue", "letsencrypt.org"}, {128, "iodef", `mailto:a"b@example.com`}}
	h := soundHandler(w)
	m := asked(t, h, query1("api.example.", dns.TypeCAA), TCP)
	if len(m.Answer) != 2 {
		t.Fatalf("got %v", m)
	}
	first, second := m.Answer[0].(*dns.CAA), m.Answer[1].(*dns.CAA)
	if first.Tag != "issue" || first.Value != "letsencrypt.org" || second.Flag != 128 || second.Value != `mailto:a"b@example.com` {
		t.Errorf("got %v and %v", first, second)
	}
	// Whoever looks climbs from the service to the apex, so NODATA below is as good as the record.
	if m := asked(t, h, query1("chat.api.example.", dns.TypeCAA), UDP); len(m.Answer) != 0 || m.Rcode != dns.RcodeSuccess {
		t.Errorf("below the apex: %v", m)
	}
}

func TestZoneVersionIsTheSerial(t *testing.T) {
	h := soundHandler(newWorld())
	for _, name := range []string{"chat.api.example.", "nope.api.example."} {
		m := asked(t, h, edns(query1(name, dns.TypeA), 1232, 0, opt1(19)), UDP)
		if got := hex.EncodeToString(optionOf(t, m, 19)); got != "020000000007" { // two labels, type SOA-SERIAL, 7
			t.Errorf("%s: %s", name, got)
		}
	}
	if m := asked(t, h, edns(query1("elsewhere.example.", dns.TypeA), 1232, 0, opt1(19)), UDP); optionOf(t, m, 19) != nil {
		t.Errorf("a refusal carries a version: %v", m)
	}
	if m := asked(t, h, edns(query1("chat.api.example.", dns.TypeA), 1232, 0, opt1(19, 1)), UDP); m.Rcode != dns.RcodeFormatError {
		t.Errorf("a query that states a version: %v", m)
	}
}

func TestExtendedErrorsOfStaleAndForcedAnswers(t *testing.T) {
	w := newStill()
	h := soundHandler(w)
	for _, c := range []struct {
		stale, forced bool
		want          string
	}{{false, false, ""}, {true, false, "0003"}, {false, true, "0004"}, {true, true, "0003"}} {
		w.given.Stale, w.given.Forced = c.stale, c.forced
		m := asked(t, h, edns(query1("chat.api.example.", dns.TypeA), 1232, 0, nil), UDP)
		if got := hex.EncodeToString(optionOf(t, m, 15)); got != c.want {
			t.Errorf("stale %v, forced %v: %q, want %q", c.stale, c.forced, got, c.want)
		}
		if m := asked(t, h, query1("chat.api.example.", dns.TypeA), UDP); m.IsEdns0() != nil || len(m.Answer) != 1 {
			t.Errorf("without EDNS: %v", m)
		}
	}
}

func TestDebugNamesCanBeTurnedOff(t *testing.T) {
	h := soundHandler(newWorld())
	if m := asked(t, h, query1("_view.api.example.", dns.TypeTXT), UDP); len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != "plan_epoch=3" {
		t.Errorf("_view: %v", m)
	}
	for _, name := range []string{"_view.api.example.", "_whoami.api.example.", "_why.chat.api.example."} {
		h.debug = true
		if m := asked(t, h, query1(name, dns.TypeTXT), UDP); m.Rcode != dns.RcodeSuccess || m.Answer[0].Header().Ttl != 0 {
			t.Errorf("%s: %v", name, m)
		}
		h.debug = false
		if m := asked(t, h, query1(name, dns.TypeTXT), UDP); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s, turned off: %v", name, m)
		}
	}
}

func TestVersionIsToldWhereTheOperatorSaysSo(t *testing.T) {
	h := soundHandler(newWorld())
	h.version = "spillway 1"
	for _, name := range []string{"version.bind.", "version.server."} {
		if m := asked(t, h, chaosQuery(name), UDP); len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != "spillway 1" {
			t.Errorf("%s: %v", name, m)
		}
	}
	h.version, h.nsid = "", ""
	for _, name := range []string{"version.bind.", "id.server."} {
		if m := asked(t, h, chaosQuery(name), UDP); m.Rcode != dns.RcodeRefused {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// TestCookiesOnTheWire asks as a resolver does: first with its own half, then with what it was given.
func TestCookiesOnTheWire(t *testing.T) {
	w := newWorld()
	secret := Secret{7}
	s := start(t, w, func(c *Config) { c.Secrets = func() []Secret { return []Secret{secret} } })
	own := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, name := range []string{"chat.api.example.", "nope.api.example."} { // the fast path and the other
		q := query1(name, dns.TypeA)
		given := optionOf(t, unpack(t, exchangeUDP(t, s, edns(q, 1232, 0, opt1(10, own...)))), 10)
		if len(given) != 24 || !bytes.Equal(given[:8], own) {
			t.Fatalf("%s: cookie %x", name, given)
		}
		again := optionOf(t, unpack(t, exchangeUDP(t, s, edns(q, 1232, 0, opt1(10, given...)))), 10)
		if !bytes.Equal(again, given) {
			t.Errorf("%s: cookie %x became %x", name, given, again)
		}
	}
	empty := edns([]byte{0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1232, 0, opt1(10, own...))
	if m := new(dns.Msg); m.Unpack(exchangeUDP(t, s, empty)) != nil || m.Rcode != dns.RcodeSuccess || len(m.Question) != 0 || len(m.IsEdns0().Option) != 1 {
		t.Errorf("a question for a cookie alone (RFC 7873, 5.4): %v", m)
	}
}

// TestWhoShowsACookieGetsEverything holds that only the unproven are held short.
func TestWhoShowsACookieGetsEverything(t *testing.T) {
	w := newWorld()
	w.many = 20
	p := newPaths(w)
	c := clientOf(t, "0102030405060708")
	given, _ := c.check(p.slow.secrets(), home, time.Now())
	for cookie, want := range map[string]int{string(given.data[:]): 20, string(given.data[:23]) + "x": 9} {
		msg := edns(query1("wide.api.example.", dns.TypeA), 1232, 0, opt1(10, []byte(cookie)...))
		if !p.agree(t, msg, home) {
			t.Fatal("declined")
		}
		if m := asked(t, &p.slow, msg, UDP); len(m.Answer) != want {
			t.Errorf("%d addresses, want %d", len(m.Answer), want)
		}
	}
}
