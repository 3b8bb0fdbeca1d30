package clientip_test

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
)

func trustNetworks(t testing.TB, header clientip.ForwardHeader, nets ...string) clientip.TrustedProxies {
	t.Helper()
	var ps []netip.Prefix
	for _, n := range nets {
		p, err := clientip.ParseNetwork(n)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return clientip.NewTrustedProxies(ps, header)
}

func TestClientAddrBehindProxies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header clientip.ForwardHeader
		remote string
		lines  map[string][]string
		want   string
	}{
		{"nobody is believed", "", "203.0.113.9", map[string][]string{"X-Forwarded-For": {"198.51.100.1"}}, "203.0.113.9"},
		{"a proxy", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1"}}, "198.51.100.1"},
		{"a proxy as IPv4 in IPv6", "", "::ffff:10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1"}}, "198.51.100.1"},
		{"what a client wrote stands on the left", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"1.1.1.1, 198.51.100.1"}}, "198.51.100.1"},
		{"a chain of proxies", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"1.1.1.1, 198.51.100.1, 10.0.0.9,10.0.0.8"}}, "198.51.100.1"},
		{"lines are one list", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"1.1.1.1", "198.51.100.1, 10.0.0.9"}}, "198.51.100.1"},
		{"a client that claims to be a proxy", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"10.0.0.7, 198.51.100.1"}}, "198.51.100.1"},
		{"proxies alone", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"10.0.0.7, 10.0.0.8"}}, "10.0.0.7"},
		{"no header", "", "10.0.0.1", nil, "10.0.0.1"},
		{"rubbish on the right ends the walk", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1, nonsense"}}, "10.0.0.1"},
		{"rubbish behind a proxy", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1, unknown, 10.0.0.9"}}, "10.0.0.9"},
		{"rubbish on the left does no harm", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"<script>, 198.51.100.1"}}, "198.51.100.1"},
		{"a port", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1:443"}}, "198.51.100.1"},
		{"IPv6 with a port", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"[2001:db8::1]:443"}}, "2001:db8::1"},
		{"IPv6 in brackets", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"[2001:db8::1]"}}, "2001:db8::1"},
		{"IPv6", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"2001:db8::1"}}, "2001:db8::1"},
		{"empty members", "", "10.0.0.1", map[string][]string{"X-Forwarded-For": {"198.51.100.1, ,"}}, "198.51.100.1"},
		{"the other header is not believed", "", "10.0.0.1", map[string][]string{"Forwarded": {"for=1.1.1.1"}}, "10.0.0.1"},
		{"Forwarded", clientip.Forwarded, "10.0.0.1", map[string][]string{"Forwarded": {"for=1.1.1.1, For=198.51.100.1;proto=https;by=10.0.0.2"}, "X-Forwarded-For": {"9.9.9.9"}}, "198.51.100.1"},
		{"Forwarded, quoted", clientip.Forwarded, "10.0.0.1", map[string][]string{"Forwarded": {`host="a,b;for=1.1.1.1" ; for="[2001:db8::7]:47011"`}}, "2001:db8::7"},
		{"Forwarded, hidden", clientip.Forwarded, "10.0.0.1", map[string][]string{"Forwarded": {"for=198.51.100.1, for=_hidden"}}, "10.0.0.1"},
		{"Forwarded, two fors", clientip.Forwarded, "10.0.0.1", map[string][]string{"Forwarded": {"for=198.51.100.1;for=1.1.1.1"}}, "10.0.0.1"},
		{"Forwarded, an open quote", clientip.Forwarded, "10.0.0.1", map[string][]string{"Forwarded": {`for="198.51.100.1, for=1.1.1.1`}}, "10.0.0.1"},
		{"none", clientip.NoForwardHeader, "10.0.0.1", map[string][]string{"Forwarded": {"for=1.1.1.1"}, "X-Forwarded-For": {"9.9.9.9"}}, "10.0.0.1"},
	} {
		tr := trustNetworks(t, tc.header, "10.0.0.0/8", "2001:db8:ffff::/48")
		if got := tr.ClientAddr(netip.MustParseAddr(tc.remote), http.Header(tc.lines)).Unmap(); got.String() != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	for _, ok := range []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1", "::ffff:10.0.0.1"} {
		if _, err := clientip.ParseNetwork(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "10.0.0.1/8", "ten", "10.0.0.0/33", "fe80::1%eth0", "::ffff:10.0.0.0/104"} {
		if p, err := clientip.ParseNetwork(bad); err == nil {
			t.Errorf("%s is read as %s", bad, p)
		}
	}
}

// encodeV2 builds a version 2 header around addresses and TLVs.
func encodeV2(command, family byte, rest ...byte) string {
	b := []byte("\r\n\r\n\x00\r\nQUIT\n")
	b = append(b, command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rest)))
	return string(append(b, rest...))
}

// withChecksum adds a checksum to a version 2 header.
func withChecksum(h string, wrong byte) string {
	b := []byte(h)
	binary.BigEndian.PutUint16(b[14:], binary.BigEndian.Uint16(b[14:])+7)
	b = append(b, 3, 0, 4, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	b[len(b)-1] += wrong
	return string(b)
}

func ipv4Addresses() []byte { return []byte{198, 51, 100, 1, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb} }

func ipv6Addresses() []byte {
	a, b := netip.MustParseAddr("2001:db8::9").As16(), netip.MustParseAddr("2001:db8::1").As16()
	return append(append(a[:], b[:]...), 0x30, 0x39, 0x01, 0xbb)
}

func TestParseProxyHeader(t *testing.T) {
	for _, tc := range []struct {
		name, in, src string
		err           error
	}{
		{"v1", "PROXY TCP4 198.51.100.1 10.0.0.1 12345 443\r\n", "198.51.100.1:12345", nil},
		{"v1 IPv6", "PROXY TCP6 2001:db8::9 2001:db8::1 12345 443\r\n", "[2001:db8::9]:12345", nil},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "", nil},
		{"v1 unknown with more", "PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n", "", nil},
		{"v1 bare LF", "PROXY TCP4 198.51.100.1 10.0.0.1 12345 443\n", "", clientip.ErrMalformed},
		{"v1 wrong family", "PROXY TCP4 2001:db8::9 2001:db8::1 12345 443\r\n", "", clientip.ErrMalformed},
		{"v1 port too large", "PROXY TCP4 198.51.100.1 10.0.0.1 70000 443\r\n", "", clientip.ErrMalformed},
		{"v1 port with zeros", "PROXY TCP4 198.51.100.1 10.0.0.1 00080 443\r\n", "", clientip.ErrMalformed},
		{"v1 two spaces", "PROXY TCP4  198.51.100.1 10.0.0.1 80 443\r\n", "", clientip.ErrMalformed},
		{"v1 zone", "PROXY TCP6 fe80::1%eth0 fe80::2 80 443\r\n", "", clientip.ErrMalformed},
		{"v1 too long", "PROXY " + strings.Repeat("x", 200), "", clientip.ErrMalformed},
		{"v1 UDP", "PROXY UDP4 198.51.100.1 10.0.0.1 80 443\r\n", "", clientip.ErrMalformed},
		{"v2", encodeV2(0x21, 0x11, ipv4Addresses()...), "198.51.100.1:12345", nil},
		{"v2 IPv6", encodeV2(0x21, 0x21, ipv6Addresses()...), "[2001:db8::9]:12345", nil},
		{"v2 with notes", encodeV2(0x21, 0x11, append(ipv4Addresses(), 0xea, 0, 2, 'h', 'i')...), "198.51.100.1:12345", nil},
		{"v2 with a checksum", withChecksum(encodeV2(0x21, 0x11, ipv4Addresses()...), 0), "198.51.100.1:12345", nil},
		{"v2 with a wrong checksum", withChecksum(encodeV2(0x21, 0x11, ipv4Addresses()...), 1), "", clientip.ErrMalformed},
		{"v2 local", encodeV2(0x20, 0x00), "", nil},
		{"v2 local with addresses", encodeV2(0x20, 0x11, ipv4Addresses()...), "", nil},
		{"v2 unspecified", encodeV2(0x21, 0x00), "", nil},
		{"v2 unix", encodeV2(0x21, 0x31, make([]byte, 216)...), "", nil},
		{"v2 of a third version", encodeV2(0x31, 0x11, ipv4Addresses()...), "", clientip.ErrMalformed},
		{"v2 of an unknown command", encodeV2(0x22, 0x11, ipv4Addresses()...), "", clientip.ErrMalformed},
		{"v2 of an unknown family", encodeV2(0x21, 0x41, ipv4Addresses()...), "", clientip.ErrMalformed},
		{"v2 with too few addresses", encodeV2(0x21, 0x21, ipv4Addresses()...), "", clientip.ErrMalformed},
		{"v2 with notes beyond its end", encodeV2(0x21, 0x11, append(ipv4Addresses(), 0xea, 0, 9, 'h')...), "", clientip.ErrMalformed},
		{"v2 with half a note", encodeV2(0x21, 0x11, append(ipv4Addresses(), 0xea)...), "", clientip.ErrMalformed},
		{"v2 that is huge", encodeV2(0x21, 0x11, make([]byte, 4000)...), "", clientip.ErrMalformed},
		{"nothing yet", "", "", clientip.ErrIncomplete},
		{"half a word", "PRO", "", clientip.ErrIncomplete},
		{"half a line", "PROXY TCP4 198", "", clientip.ErrIncomplete},
		{"half a signature", "\r\n\r\n\x00", "", clientip.ErrIncomplete},
		{"half of v2", encodeV2(0x21, 0x11, ipv4Addresses()...)[:20], "", clientip.ErrIncomplete},
		{"a request", "POST /v1 HTTP/1.1\r\n", "", clientip.ErrMissing},
		{"TLS", "\x16\x03\x01", "", clientip.ErrMissing},
	} {
		src, n, err := clientip.ParseProxyHeader([]byte(tc.in))
		if err != tc.err || err == nil && n != len(tc.in) {
			t.Errorf("%s: %v after %d of %d bytes, want %v", tc.name, err, n, len(tc.in), tc.err)
		}
		if got := src.String(); err == nil && tc.src != "" && got != tc.src || tc.src == "" && src.IsValid() {
			t.Errorf("%s: from %s, want %q", tc.name, got, tc.src)
		}
	}
}

// The result does not depend on how a header is split, and the bytes after it are untouched.
func FuzzParseProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 198.51.100.1 10.0.0.1 12345 443\r\nGET /"))
	f.Add([]byte(encodeV2(0x21, 0x11, ipv4Addresses()...) + "GET /"))
	f.Add([]byte(withChecksum(encodeV2(0x21, 0x21, ipv6Addresses()...), 0)))
	f.Add([]byte(encodeV2(0x20, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		src, n, err := clientip.ParseProxyHeader(b)
		if err != nil {
			if n != 0 || src.IsValid() {
				t.Fatalf("%v, and yet %s after %d bytes", err, src, n)
			}
			return
		}
		for i := range n {
			if _, _, err := clientip.ParseProxyHeader(b[:i]); err != clientip.ErrIncomplete {
				t.Fatalf("of %d bytes the first %d are %v", n, i, err)
			}
		}
		if again, m, err := clientip.ParseProxyHeader(b[:n]); err != nil || m != n || again != src {
			t.Fatalf("alone it is %s, %d bytes (%v)", again, m, err)
		}
	})
}

// For any header, the client is the address of the connection or one in the header, and a connection from an
// untrusted peer keeps its address.
func FuzzClientAddr(f *testing.F) {
	f.Add("198.51.100.1, 10.0.0.2", `for="[2001:db8::7]:4"; by=x, for=10.0.0.3`)
	f.Fuzz(func(t *testing.T, xff, fwd string) {
		h := http.Header{"X-Forwarded-For": {xff}, "Forwarded": {fwd}}
		for _, kind := range []clientip.ForwardHeader{clientip.XForwardedFor, clientip.Forwarded, clientip.NoForwardHeader} {
			tr := trustNetworks(t, kind, "10.0.0.0/8")
			stranger, proxy := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.0.0.1")
			if got := tr.ClientAddr(stranger, h); got != stranger {
				t.Fatalf("a stranger became %s", got)
			}
			if got := tr.ClientAddr(proxy, h); !got.IsValid() || got.Is4In6() || got.Zone() != "" {
				t.Fatalf("%q, %q: the client is %s", xff, fwd, got)
			}
		}
	})
}

// startProxyListener starts a ProxyListener with proxies on loopback.
func startProxyListener(t *testing.T, headed bool, timeout time.Duration, nets ...string) (l *clientip.ProxyListener, refused chan string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused = make(chan string, 1)
	l = &clientip.ProxyListener{Listener: inner, Trusted: trustNetworks(t, "", nets...), RequireHeader: headed, HeaderTimeout: timeout, OnRefused: func(r string) { refused <- r }}
	t.Cleanup(func() { _ = l.Close() })
	return l, refused
}

// pieceListener accepts connections that are read in pieces of given lengths.
type pieceListener struct {
	net.Listener
	pieces []string
}

func (l pieceListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &pieceConn{c, l.pieces}, err
}

// pieceConn returns at most the rest of one piece from each Read, as if every piece arrived in a packet of its own.
type pieceConn struct {
	net.Conn
	pieces []string
}

func (c *pieceConn) Read(b []byte) (int, error) {
	if len(c.pieces) == 0 {
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b[:min(len(b), len(c.pieces[0]))])
	if c.pieces[0] = c.pieces[0][n:]; c.pieces[0] == "" {
		c.pieces = c.pieces[1:]
	}
	return n, err
}

// dialAndAccept connects to the listener, sends pieces that are read one by one, and returns the accepted connection.
func dialAndAccept(t *testing.T, l *clientip.ProxyListener, pieces ...string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte(strings.Join(pieces, ""))); err != nil {
		t.Fatal(err)
	}
	if len(pieces) > 1 {
		l.Listener = pieceListener{l.Listener, pieces}
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

func TestListenerReadsProxyHeader(t *testing.T) {
	whole := strings.Split(encodeV2(0x21, 0x11, ipv4Addresses()...)+"hello", "")
	for _, pieces := range [][]string{whole, {encodeV2(0x21, 0x11, ipv4Addresses()...) + "hello"}, {"PROXY TCP4 198.51.100.1 10.0.0.1 12345 ", "443\r\nhe", "llo"}} {
		l, _ := startProxyListener(t, true, time.Minute, "127.0.0.1")
		in := dialAndAccept(t, l, pieces...)
		if got := in.RemoteAddr().String(); got != "198.51.100.1:12345" {
			t.Errorf("%q: from %s", pieces, got)
		}
		got := make([]byte, 5)
		for n := 0; n < 5; {
			m, err := in.Read(got[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		if string(got) != "hello" {
			t.Errorf("%q: then came %q", pieces, got)
		}
	}
}

func TestListenerRefusesBadProxyHeader(t *testing.T) {
	for want, piece := range map[string]string{"missing": "GET / HTTP/1.1\r\n", "malformed": "PROXY TCP9 a b\r\n", "timeout": "PROXY "} {
		timeout := time.Minute
		if want == "timeout" {
			timeout = 20 * time.Millisecond
		}
		l, refused := startProxyListener(t, true, timeout, "127.0.0.1")
		in := dialAndAccept(t, l, piece)
		if n, err := in.Read(make([]byte, 10)); err == nil {
			t.Errorf("%s: %d bytes were let in", want, n)
		}
		if got := <-refused; got != want {
			t.Errorf("refused as %s, want %s", got, want)
		}
	}
}

// A PROXY header from an untrusted peer is ordinary data.
func TestListenerIgnoresHeadersOfUntrustedPeers(t *testing.T) {
	l, _ := startProxyListener(t, true, time.Minute, "192.0.2.1")
	in := dialAndAccept(t, l, "PROXY TCP4 198.51.100.1 10.0.0.1 12345 443\r\n")
	got := make([]byte, 5)
	if _, err := in.Read(got); err != nil || string(got) != "PROXY" || !strings.HasPrefix(in.RemoteAddr().String(), "127.0.0.1:") {
		t.Errorf("%q from %s (%v)", got, in.RemoteAddr(), err)
	}
	if _, ok := in.(*net.TCPConn); !ok {
		t.Errorf("a client's connection became a %T", in)
	}
}

func TestClientLimitKey(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::",
		"2001:db8:1:2::1": "2001:db8:1:2::", "2001:db8:1:3::1": "2001:db8:1:3::", "fe80::1%eth0": "fe80::",
	} {
		if got := clientip.ClientLimitKey(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
