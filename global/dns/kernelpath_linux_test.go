package dns

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns/xdp"
)

// mappedSnapshot answers chat, and long names, from a map of scopes.
type mappedSnapshot struct {
	*fakeSnapshot
	networks *geo.ScopeMap
	regions  [][]netip.Addr
	records  []*PreparedRecords
}

// newMappedSnapshot makes random networks of four values: two regions of one and of three addresses, one without IPv6,
// and one value that the program must leave to the socket.
func newMappedSnapshot(t testing.TB) *mappedSnapshot {
	t.Helper()
	rng := rand.New(rand.NewPCG(14, 6))
	cfg := geo.Config{}
	for range 3000 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], rng.Uint32()&0x0fffffff)
		at := netip.PrefixFrom(netip.AddrFrom4(b), 4+rng.IntN(29)).Masked()
		cfg.Overrides = append(cfg.Overrides, geo.Override{Prefix: at, Location: geo.Location{Lat: float64(rng.IntN(4)) * 10, Lon: 1}})
	}
	atlas, err := geo.BuildAtlas(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &mappedSnapshot{fakeSnapshot: newFakeSnapshot()}
	w.names["a23456789.b23456789.c23456789.d23456789.e23456.api.example."] = chatID // 61 octets
	w.networks = atlas.BuildScopeMap(func(cell int32) int32 {
		if cell == geo.NoCell {
			return 0
		}
		return cell % 7 * 2 % 5
	})
	parse := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	w.regions = [][]netip.Addr{parse("198.51.100.1", "2001:db8::1"), parse("198.51.100.2", "198.51.100.3", "198.51.100.4", "2001:db8::2", "2001:db8::3"), parse("198.51.100.5")}
	for _, r := range w.regions {
		w.records = append(w.records, NewPreparedRecords(r, 0))
	}
	return w
}

func (w *mappedSnapshot) AnswerService(id int, client netip.Addr) ServiceAnswer {
	if id != chatID {
		return w.fakeSnapshot.AnswerService(id, client)
	}
	value, scope := w.networks.FindValue(client)
	if value == 0 || int(value) > len(w.regions) {
		return ServiceAnswer{Addrs: []netip.Addr{defaultAddr}, TTL: 20, Scope: max(scope, 24), OK: true, Records: NewPreparedRecords([]netip.Addr{defaultAddr}, 0)}
	}
	return ServiceAnswer{Addrs: w.regions[value-1], TTL: 20, Scope: scope, OK: true, Records: w.records[value-1]}
}

func (w *mappedSnapshot) CompiledNames() (out []CompiledName) {
	for name, id := range w.names {
		if id == chatID {
			out = append(out, CompiledName{Name: name, Service: id, Networks: w.networks, TTL: 20, Records: w.records})
		}
	}
	slices.SortFunc(out, func(a, b CompiledName) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out
}

var programHost = netip.MustParseAddr("192.0.2.53")

// loadProgram loads the program with the snapshot's image, or skips the test.
func loadProgram(t testing.TB, w *mappedSnapshot, limiter *responseLimiter) *xdp.Responder {
	t.Helper()
	r, err := xdp.Load([]uint16{53}, describeLimit(limiter))
	if err != nil {
		t.Skip("the kernel does not load the program here: ", err)
	}
	t.Cleanup(r.Close)
	if limiter != nil {
		limiter.table = atomicSlots(r.LimitTable())
	}
	image, leftOut := xdp.BuildImage([]netip.Addr{programHost}, toImageNames(w.CompiledNames()))
	if leftOut > 0 {
		t.Fatalf("%d names left out", leftOut)
	}
	if err := r.SetImage(image); err != nil {
		t.Fatal(err)
	}
	return r
}

// clientsOf returns n clients in different networks whose answers are one address.
func (w *mappedSnapshot) clientsOf(n int) (out []netip.Addr) {
	for i := uint32(1 << 24); len(out) < n; i += 65536 + 256 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], i)
		if v, _ := w.networks.FindValue(netip.AddrFrom4(b)); v == 1 || v == 3 {
			out = append(out, netip.AddrFrom4(b))
		}
	}
	return out
}

// makeFrame wraps a query into Ethernet, IPv4 and UDP.
func makeFrame(query []byte, from netip.Addr) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 63, 17, 0, 0}
	b = append(append(b, from.AsSlice()...), programHost.AsSlice()...)
	b = append(b, 0xab, 0xcd, 0, 53, 0, 0, 0x99, 0x99)
	binary.BigEndian.PutUint16(b[16:], uint16(28+len(query)))
	binary.BigEndian.PutUint16(b[38:], uint16(8+len(query)))
	return append(b, query...)
}

// checkReply checks a frame's headers against those of its query, and returns the message in it.
func checkReply(t testing.TB, frame, reply []byte) []byte {
	t.Helper()
	if len(reply) < 42 || !bytes.Equal(reply[:6], frame[6:12]) || !bytes.Equal(reply[6:12], frame[:6]) || reply[12] != 8 || reply[13] != 0 {
		t.Fatalf("frame %x after %x", reply, frame)
	}
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(reply[i:]))
	}
	if sum = sum>>16 + sum&0xffff; sum>>16+sum&0xffff != 0xffff {
		t.Fatalf("IP checksum of %x", reply[14:34])
	}
	if !bytes.Equal(reply[26:30], frame[30:34]) || !bytes.Equal(reply[30:34], frame[26:30]) || !bytes.Equal(reply[34:36], frame[36:38]) || !bytes.Equal(reply[36:38], frame[34:36]) {
		t.Fatalf("addresses of %x after %x", reply[:42], frame[:42])
	}
	if n := len(reply) - 34; int(binary.BigEndian.Uint16(reply[38:])) != n || int(binary.BigEndian.Uint16(reply[16:])) != n+20 || reply[40]|reply[41] != 0 {
		t.Fatalf("lengths of %x", reply[:42])
	}
	return reply[42:]
}

// programPair is the program and the socket path over one snapshot.
type programPair struct {
	*pathPair
	responder *xdp.Responder
}

func newProgramPair(t testing.TB) *programPair {
	w := newMappedSnapshot(t)
	p := &programPair{pathPair: newPathPair(w.fakeSnapshot)}
	p.slow.snapshot = func() Snapshot { return w }
	p.responder = loadProgram(t, w, nil)
	return p
}

// checkProgram requires of the program the answer of the fast path, or that it leaves the frame as it is. It reports
// whether the program answered.
func (p *programPair) checkProgram(t testing.TB, query []byte, from netip.Addr) bool {
	t.Helper()
	frame := makeFrame(query, from)
	verdict, after, err := p.responder.RunPacket(frame)
	if err != nil {
		t.Fatal(err)
	}
	if verdict == xdp.VerdictPass {
		if !bytes.Equal(after, frame) {
			t.Fatalf("a passed frame has changed: %x became %x", frame, after)
		}
		return false
	}
	if verdict != xdp.VerdictSend {
		t.Fatalf("verdict %d for %x", verdict, query)
	}
	got := checkReply(t, frame, after)
	buf := make([]byte, maxUDPSize)
	n, _, ok := p.fast.answerQuery(buf, query, from, time.Now())
	if !ok || !bytes.Equal(got, buf[:n]) {
		t.Fatalf("to %x\nfrom %s: program %x\nfast path %x (%v)", query, from, got, buf[:n], ok)
	}
	return true
}

// subnetQuery is a query with EDNS and a Client Subnet.
func subnetQuery(name string, qtype uint16, subnet netip.Prefix) []byte {
	q := plainQuery(name, qtype)
	q[11] = 1
	octets := (subnet.Bits() + 7) / 8
	q = append(q, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, byte(8+octets), 0, 8, 0, byte(4+octets), 0, 1, byte(subnet.Bits()), 0)
	return append(q, subnet.Masked().Addr().AsSlice()[:octets]...)
}

func TestProgramAnswersLikeTheSocketPath(t *testing.T) {
	p := newProgramPair(t)
	rng := rand.New(rand.NewPCG(1, 6))
	const rounds = 20_000
	answered, plain := 0, 0
	for i := range rounds {
		name := []string{"chat.api.example.", "cHaT.API.example.", "a23456789.B23456789.c23456789.d23456789.e23456.api.EXAMPLE."}[rng.IntN(3)]
		qtype := []uint16{dns.TypeA, dns.TypeA, dns.TypeAAAA}[rng.IntN(3)]
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], rng.Uint32()&0x0fffffff)
		from := netip.AddrFrom4([4]byte{1 + b[0], b[1], b[2], b[3]})
		var q []byte
		switch rng.IntN(4) {
		case 0:
			q = plainQuery(name, qtype)
		case 1:
			q = append(plainQuery(name, qtype), 0, 0, 41, byte(rng.IntN(8)), byte(rng.IntN(256)), 0, 0, 0, 0, 0, 0)
			q[11] = 1
		default:
			q = subnetQuery(name, qtype, netip.PrefixFrom(netip.AddrFrom4(b), 1+rng.IntN(32)))
		}
		q[0], q[1], q[2], q[3] = byte(i), byte(i>>8), byte(rng.IntN(2)), byte(rng.IntN(256))
		value, _ := p.slow.snapshot().(*mappedSnapshot).networks.FindValue(from)
		isPlain := q[11] == 0 && qtype == dns.TypeA && value > 0 && value < 4
		if isPlain {
			plain++
		}
		switch ok := p.checkProgram(t, q, from); {
		case ok:
			answered++
		case isPlain && value != 2: // three addresses may be more than three times the query
			t.Fatalf("the program passes %x from %s with value %d", q, from, value)
		}
		for range rng.IntN(3) { // and damaged ones
			q[rng.IntN(len(q))] ^= 1 << rng.IntN(8)
		}
		p.checkProgram(t, q[:len(q)-rng.IntN(2)*rng.IntN(5)], from)
	}
	if answered < rounds/3 || plain < 100 {
		t.Errorf("the program answered %d of %d queries, %d of them plain", answered, rounds, plain)
	}
}

func TestProgramPassesUnusualPackets(t *testing.T) {
	p := newProgramPair(t)
	from := p.slow.snapshot().(*mappedSnapshot).clientsOf(1)[0]
	good := makeFrame(plainQuery("chat.api.example.", dns.TypeA), from)
	if verdict, _, err := p.responder.RunPacket(good); err != nil || verdict != xdp.VerdictSend {
		t.Fatalf("verdict %d, %v", verdict, err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"VLAN tag":            func(b []byte) []byte { b[12], b[13] = 0x81, 0; return b },
		"IPv6":                func(b []byte) []byte { b[12], b[13] = 0x86, 0xdd; return b },
		"broadcast":           func(b []byte) []byte { copy(b, "\xff\xff\xff\xff\xff\xff"); return b },
		"IP options":          func(b []byte) []byte { b[14] = 0x46; return b },
		"first fragment":      func(b []byte) []byte { b[20] |= 0x20; return b },
		"later fragment":      func(b []byte) []byte { b[21] = 3; return b },
		"TCP":                 func(b []byte) []byte { b[23] = 6; return b },
		"another port":        func(b []byte) []byte { b[37] = 54; return b },
		"another host":        func(b []byte) []byte { b[33]++; return b },
		"source port 0":       func(b []byte) []byte { b[34], b[35] = 0, 0; return b },
		"loopback source":     func(b []byte) []byte { b[26] = 127; return b },
		"multicast source":    func(b []byte) []byte { b[26] = 230; return b },
		"cut frame":           func(b []byte) []byte { return b[:len(b)-1] },
		"UDP length too long": func(b []byte) []byte { b[39]++; return b },
		"an answer":           func(b []byte) []byte { b[44] |= 0x80; return b },
		"two questions":       func(b []byte) []byte { b[47] = 2; return b },
		"type MX":             func(b []byte) []byte { b[len(b)-3] = 15; return b },
		"class CH":            func(b []byte) []byte { b[len(b)-1] = 3; return b },
		"another name":        func(b []byte) []byte { b[56]++; return b },
	} {
		b := change(slices.Clone(good))
		verdict, after, err := p.responder.RunPacket(b)
		if err != nil || verdict != xdp.VerdictPass || !bytes.Equal(after, b) {
			t.Errorf("%s: verdict %d, %v", name, verdict, err)
		}
	}
	cookie := append(plainQuery("chat.api.example.", dns.TypeA), 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8)
	cookie[11] = 1
	signed := append(plainQuery("chat.api.example.", dns.TypeA), 0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0)
	signed[11] = 1
	for name, q := range map[string][]byte{"cookie": cookie, "DO": signed, "no steered name": plainQuery("ns1.dns.api.example.", dns.TypeA)} {
		if p.checkProgram(t, q, from) {
			t.Errorf("%s: the program answers", name)
		}
	}
	padded := append(slices.Clone(good), make([]byte, 20)...) // as by Ethernet's shortest frame
	verdict, after, err := p.responder.RunPacket(padded)
	if err != nil || verdict != xdp.VerdictSend {
		t.Fatalf("padded frame: verdict %d, %v", verdict, err)
	}
	checkReply(t, padded, after)
}

func TestProgramAndSocketPathShareOneRateLimit(t *testing.T) {
	w := newMappedSnapshot(t)
	const rate = 50
	limiter := newResponseLimiter(rate, 0)
	r := loadProgram(t, w, limiter)
	p := newPathPair(w.fakeSnapshot)
	p.slow.snapshot, p.slow.limiter = func() Snapshot { return w }, limiter
	clients := w.clientsOf(2)
	from := clients[0]
	q := plainQuery("chat.api.example.", dns.TypeA)
	frame, buf := makeFrame(q, from), make([]byte, maxUDPSize)
	begin := time.Now()
	byProgram, bySocket := 0, 0
	for i := range 4 * rate {
		if i%2 == 0 {
			if verdict, _, err := r.RunPacket(frame); err != nil {
				t.Fatal(err)
			} else if verdict == xdp.VerdictSend {
				byProgram++
				continue
			}
		}
		if n, _, ok := p.fast.answerQuery(buf, q, from, time.Now()); ok && n > 0 {
			bySocket++
		}
	}
	most := rate + 2 + int(time.Since(begin).Seconds()*rate) // a burst of one second
	if byProgram == 0 || bySocket == 0 || byProgram+bySocket > most || byProgram+bySocket < rate {
		t.Errorf("%d answers by the program and %d by the socket path, want both and %d to %d together", byProgram, bySocket, rate, most)
	}
	if verdict, _, err := r.RunPacket(makeFrame(q, clients[1])); err != nil || verdict != xdp.VerdictSend {
		t.Errorf("another network: verdict %d, %v", verdict, err)
	}
}

func TestImageIsReplacedAsAWhole(t *testing.T) {
	p := newProgramPair(t)
	q := plainQuery("chat.api.example.", dns.TypeA)
	w := p.slow.snapshot().(*mappedSnapshot)
	for _, from := range w.clientsOf(3) {
		if !p.checkProgram(t, q, from) {
			t.Fatalf("%s is not answered", from)
		}
		empty, _ := xdp.BuildImage([]netip.Addr{programHost}, nil)
		if err := p.responder.SetImage(empty); err != nil {
			t.Fatal(err)
		}
		if p.checkProgram(t, q, from) {
			t.Fatal("answered from an empty image")
		}
		again, _ := xdp.BuildImage([]netip.Addr{programHost}, toImageNames(w.CompiledNames()))
		if err := p.responder.SetImage(again); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := p.responder.Counts()
	if err != nil || counts != [2]uint64{3, 0} {
		t.Errorf("counts %v, %v", counts, err)
	}
}
