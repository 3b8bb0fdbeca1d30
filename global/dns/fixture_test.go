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

// fakeSnapshot is a Snapshot of two services: chat is steered by the first octet of the client, and has a child name
// in each region; idle has no region to steer to.
type fakeSnapshot struct {
	zone         ZoneData
	names        map[string]int
	addrCount    int // addresses of "wide", of each family
	explainLines int // of an explanation; 0: a few short ones
	panics       bool
	httpsPort    uint16 // port of the gateways' HTTPS
	shortTTL     uint32 // TTL of chat's answers while it is shortened; 0: it is not
}

const (
	chatID = iota
	chatEUID
	idleID
	wideID
	ipv6OnlyID
)

func newFakeSnapshot() *fakeSnapshot {
	return &fakeSnapshot{
		zone: ZoneData{
			Name: "api.example.", Contact: "hostmaster.api.example.", Serial: 7, TTL: 3600, NegativeTTL: 30,
			NS: []NameServer{
				{"ns1.dns.api.example.", []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}},
				{"ns2.other.example.", []netip.Addr{netip.MustParseAddr("192.0.2.54")}},
			},
		},
		names: map[string]int{
			"chat.api.example.": chatID, "eu.chat.api.example.": chatEUID, "idle.api.example.": idleID,
			"wide.api.example.": wideID, "six.deep.api.example.": ipv6OnlyID,
		},
		addrCount: 100,
	}
}

func (w *fakeSnapshot) Zone() *ZoneData { return &w.zone }

func (w *fakeSnapshot) LookupService(name []byte) (int, bool) {
	if w.panics {
		panic("the snapshot is broken")
	}
	id, ok := w.names[string(name)]
	return id, ok
}

func (w *fakeSnapshot) ServiceOf(id int) int {
	if id == chatEUID {
		return chatID
	}
	return id
}

func (w *fakeSnapshot) HasName(name string) bool {
	for n := range w.names {
		if dns.IsSubDomain(name, n) {
			return true
		}
	}
	return false
}

var (
	defaultAddr = netip.MustParseAddr("203.0.113.1")
	euAddr      = netip.MustParseAddr("198.51.100.1")
)

// AnswerService also prepares the records, which a snapshot in production does beforehand.
func (w *fakeSnapshot) AnswerService(id int, client netip.Addr) ServiceAnswer {
	a := w.makeAnswer(id, client)
	if w.shortTTL > 0 {
		a.TTL, a.FullTTL = w.shortTTL, a.TTL
	}
	if a.OK {
		a.Records = NewPreparedRecords(a.Addrs, w.httpsPort)
	}
	return a
}

func (w *fakeSnapshot) makeAnswer(id int, client netip.Addr) ServiceAnswer {
	switch id {
	case idleID:
		return ServiceAnswer{}
	case wideID:
		a := ServiceAnswer{TTL: 20, OK: true}
		for i := range w.addrCount {
			a.Addrs = append(a.Addrs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}))
		}
		return a
	case ipv6OnlyID:
		return ServiceAnswer{Addrs: []netip.Addr{netip.MustParseAddr("2001:db8::9")}, TTL: 20, Scope: 24, OK: true}
	case chatEUID:
		return ServiceAnswer{Addrs: []netip.Addr{euAddr}, TTL: 20, OK: true}
	}
	if client.Is4() && client.As4()[0] == 81 {
		return ServiceAnswer{Addrs: []netip.Addr{euAddr}, TTL: 20, Scope: 21, OK: true, Stale: true}
	}
	if client.Is6() {
		return ServiceAnswer{Addrs: []netip.Addr{euAddr}, TTL: 20, Scope: 44, OK: true}
	}
	return ServiceAnswer{Addrs: []netip.Addr{defaultAddr}, TTL: 20, Scope: 19, OK: true}
}

func (w *fakeSnapshot) ExplainAnswer(_ int, client netip.Addr) []string {
	if w.explainLines > 0 {
		return slices.Repeat([]string{strings.Repeat("x", 40)}, w.explainLines)
	}
	return []string{"region=eu", `quote="\`, "client=" + client.String()}
}

func (w *fakeSnapshot) DescribeClient(client netip.Addr) []string {
	return []string{"client=" + client.String()}
}

func (w *fakeSnapshot) DescribeState() []string { return []string{"plan_epoch=3", "age_ms=5"} }

// startServer runs a server over a snapshot until the test ends.
func startServer(t testing.TB, w *fakeSnapshot, change func(*Config)) *Server {
	t.Helper()
	// One goroutine for the slow path, so that its messages are answered in order.
	cfg := Config{Listen: []string{"127.0.0.1:0"}, Snapshot: func() Snapshot { return w }, NSID: "g1", Explain: true, SlowGoroutines: 1}
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
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// exchangeUDP sends raw bytes and returns the raw answer; nil if there is none. It proves the absence by two queries
// that are answered later. They take the slow path, so the first overtakes an answer of the fast path only within one
// batch, and the second is sent after that batch.
func exchangeUDP(t testing.TB, s *Server, raw []byte) []byte {
	t.Helper()
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 65536)
	fence := plainQuery("ns1.dns.api.example.", dns.TypeA)
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
	fence := plainQuery("ns1.dns.api.example.", dns.TypeA)
	binary.BigEndian.PutUint16(fence, 0xfffe)
	if _, err := c.Write(append(prependLength(raw), prependLength(fence)...)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	b := readFramed(t, c)
	if binary.BigEndian.Uint16(b) == 0xfffe {
		return nil
	}
	return b
}

func prependLength(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

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

// plainQuery returns a plain query with id 0x1234 and no flags.
func plainQuery(name string, qtype uint16) []byte {
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

// modifyCopy returns a copy of a message that f changed.
func modifyCopy(b []byte, f func([]byte)) []byte {
	b = append([]byte(nil), b...)
	f(b)
	return b
}

// setFlags sets the two bytes of flags.
func setFlags(b []byte, v uint16) []byte {
	return modifyCopy(b, func(b []byte) { binary.BigEndian.PutUint16(b[2:], v) })
}

// appendOPT appends an OPT record.
func appendOPT(b []byte, size uint16, ttl uint32, data []byte) []byte {
	b = modifyCopy(b, func(b []byte) { b[11]++ })
	b = append(b, 0, 0, 41)
	b = binary.BigEndian.AppendUint16(b, size)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

// encodeOption encodes one option of an OPT record.
func encodeOption(code uint16, data ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

func unpackMessage(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("the answer does not parse: %v\n%x", err, b)
	}
	return m
}

// findSubnet returns the answer's Client Subnet option.
func findSubnet(m *dns.Msg) *dns.EDNS0_SUBNET {
	if o := m.IsEdns0(); o != nil {
		for _, e := range o.Option {
			if s, ok := e.(*dns.EDNS0_SUBNET); ok {
				return s
			}
		}
	}
	return nil
}
