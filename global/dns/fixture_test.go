package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/miekg/dns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a View of two services: chat is steered by the first octet of the client, and has a child name in each
// region; idle has nowhere to send anybody.
type world struct {
	zone  Zone
	names map[string]int
	many  int // addresses of "wide", of each family
	lines int // of an explanation; 0: a few short ones
	panic bool
	https uint16 // port of the gateways' HTTPS
	short uint32 // TTL of chat's answers while it is shortened; 0: it is not
}

const (
	chat = iota
	chatEU
	idle
	wide
	sixOnly
)

func newWorld() *world {
	return &world{
		zone: Zone{
			Name: "api.example.", Contact: "hostmaster.api.example.", Serial: 7, TTL: 3600, Negative: 30,
			NS: []NameServer{
				{"ns1.dns.api.example.", []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}},
				{"ns2.other.example.", []netip.Addr{netip.MustParseAddr("192.0.2.54")}},
			},
		},
		names: map[string]int{
			"chat.api.example.": chat, "eu.chat.api.example.": chatEU, "idle.api.example.": idle,
			"wide.api.example.": wide, "six.deep.api.example.": sixOnly,
		},
		many: 100,
	}
}

func (w *world) Zone() *Zone { return &w.zone }

func (w *world) Lookup(name []byte) (int, bool) {
	if w.panic {
		panic("the view is broken")
	}
	id, ok := w.names[string(name)]
	return id, ok
}

func (w *world) ServiceOf(id int) int {
	if id == chatEU {
		return chat
	}
	return id
}

func (w *world) Exists(name string) bool {
	for n := range w.names {
		if dns.IsSubDomain(name, n) {
			return true
		}
	}
	return false
}

var (
	home = netip.MustParseAddr("203.0.113.1")
	euro = netip.MustParseAddr("198.51.100.1")
)

// Answer also makes the records ready, as a view does beforehand.
func (w *world) Answer(id int, client netip.Addr) Answer {
	a := w.answer(id, client)
	if w.short > 0 {
		a.TTL, a.Full = w.short, a.TTL
	}
	if a.OK {
		a.Ready = NewRecords(a.Addrs, w.https)
	}
	return a
}

func (w *world) answer(id int, client netip.Addr) Answer {
	switch id {
	case idle:
		return Answer{}
	case wide:
		a := Answer{TTL: 20, OK: true}
		for i := range w.many {
			a.Addrs = append(a.Addrs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}))
		}
		return a
	case sixOnly:
		return Answer{Addrs: []netip.Addr{netip.MustParseAddr("2001:db8::9")}, TTL: 20, Scope: 24, OK: true}
	case chatEU:
		return Answer{Addrs: []netip.Addr{euro}, TTL: 20, OK: true}
	}
	if client.Is4() && client.As4()[0] == 81 {
		return Answer{Addrs: []netip.Addr{euro}, TTL: 20, Scope: 21, OK: true, Stale: true}
	}
	if client.Is6() {
		return Answer{Addrs: []netip.Addr{euro}, TTL: 20, Scope: 44, OK: true}
	}
	return Answer{Addrs: []netip.Addr{home}, TTL: 20, Scope: 19, OK: true}
}

func (w *world) Why(_ int, client netip.Addr) []string {
	if w.lines > 0 {
		return slices.Repeat([]string{strings.Repeat("x", 40)}, w.lines)
	}
	return []string{"region=eu", `quote="\`, "client=" + client.String()}
}

func (w *world) Whoami(client netip.Addr) []string { return []string{"client=" + client.String()} }

func (w *world) State() []string { return []string{"plan_epoch=3", "age_ms=5"} }

// start runs a server over the world until the test ends.
func start(t testing.TB, w *world, change func(*Config)) *Server {
	t.Helper()
	// One goroutine for the slow path, so that messages which take it are answered in their order.
	cfg := Config{Listen: []string{"127.0.0.1:0"}, View: func() View { return w }, NSID: "g1", Explain: true, Slow: 1}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// exchangeUDP sends raw bytes and returns the raw answer; nil when there is none, which it proves by two queries that
// are answered behind it. They take the slow path, so the first overtakes an answer of the fast path only within one
// batch, and the second is asked after that batch.
func exchangeUDP(t testing.TB, s *Server, raw []byte) []byte {
	t.Helper()
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 65536)
	fence := query1("ns1.dns.api.example.", dns.TypeA)
	binary.BigEndian.PutUint16(fence, 0xfffe)
	send := func(b []byte) {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	send(raw)
	for range 2 {
		send(fence)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if binary.BigEndian.Uint16(buf) != 0xfffe {
			return buf[:n]
		}
	}
	return nil
}

// exchangeTCP is the same over TCP.
func exchangeTCP(t testing.TB, s *Server, raw []byte) []byte {
	t.Helper()
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fence := query1("ns1.dns.api.example.", dns.TypeA)
	binary.BigEndian.PutUint16(fence, 0xfffe)
	if _, err := c.Write(append(framed(raw), framed(fence)...)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := readFramed(t, c)
	if binary.BigEndian.Uint16(b) == 0xfffe {
		return nil
	}
	return b
}

func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }

func readFramed(t testing.TB, r io.Reader) []byte {
	t.Helper()
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// query1 is a plain query with id 0x1234 and no flags.
func query1(name string, qtype uint16) []byte {
	b := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	return appendQuestion(b, name, qtype, dns.ClassINET)
}

func appendQuestion(b []byte, name string, qtype, class uint16) []byte {
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label != "" {
			b = append(append(b, byte(len(label))), label...)
		}
	}
	b = append(b, 0)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, qtype), class)
}

// with returns a copy of a message that f changed.
func with(b []byte, f func([]byte)) []byte {
	b = append([]byte(nil), b...)
	f(b)
	return b
}

// flags sets the two bytes of flags.
func flags(b []byte, v uint16) []byte {
	return with(b, func(b []byte) { binary.BigEndian.PutUint16(b[2:], v) })
}

// edns appends an OPT record.
func edns(b []byte, size uint16, ttl uint32, data []byte) []byte {
	b = with(b, func(b []byte) { b[11]++ })
	b = append(b, 0, 0, 41)
	b = binary.BigEndian.AppendUint16(b, size)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

// opt1 is one option of an OPT record.
func opt1(code uint16, data ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

func unpack(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("the answer does not parse: %v\n%x", err, b)
	}
	return m
}

// subnetOf is the raw data of the answer's Client Subnet option.
func subnetOf(m *dns.Msg) *dns.EDNS0_SUBNET {
	if o := m.IsEdns0(); o != nil {
		for _, e := range o.Option {
			if s, ok := e.(*dns.EDNS0_SUBNET); ok {
				return s
			}
		}
	}
	return nil
}
