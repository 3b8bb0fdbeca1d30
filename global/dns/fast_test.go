package dns

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// pathPair is both paths over one snapshot.
type pathPair struct {
	fast fastPath
	slow handler
}

func newPathPair(w *fakeSnapshot) *pathPair {
	secrets := []CookieSecret{{1, 2, 3}}
	p := &pathPair{slow: handler{
		snapshot: func() Snapshot { return w }, secrets: func() []CookieSecret { return secrets }, nsid: "g1", explain: true, tcpIdle: 100,
	}}
	p.fast = newFastPath(&p.slow)
	return p
}

// checkAgree checks that the fast path declines a message or answers it exactly like the slow path, and reports
// which.
func (p *pathPair) checkAgree(t testing.TB, msg []byte, from netip.Addr) bool {
	t.Helper()
	buf := make([]byte, maxUDPSize)
	before := slices.Clone(msg)
	n, outcome, ok := p.fast.answerQuery(buf, msg, from, time.Now())
	event := outcome.toEvent(1)
	if !bytes.Equal(before, msg) {
		t.Fatalf("the query was written to: %x", msg)
	}
	if !ok {
		return false
	}
	out, slow, sent := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, from, UDP)
	if !sent {
		t.Fatalf("fast answers %x, slow does not: %x", buf[:n], msg)
	}
	a, b := unpackMessage(t, buf[:n]), unpackMessage(t, out)
	for _, m := range []*dns.Msg{a, b} { // the slow path writes the SOA in lower case for a question of any case
		for i, rr := range m.Ns {
			m.Ns[i] = dns.Copy(rr)
			if soa, ok := m.Ns[i].(*dns.SOA); ok {
				soa.Ns, soa.Mbox = strings.ToLower(soa.Ns), strings.ToLower(soa.Mbox)
			}
			m.Ns[i].Header().Name = strings.ToLower(m.Ns[i].Header().Name)
		}
	}
	if a.String() != b.String() || !bytes.Equal(buf[:4], out[:4]) {
		t.Fatalf("to %x\nfast %x\n%v\nslow %x\n%v", msg, buf[:n], a, out, b)
	}
	if question := len(msg); n > len(out) || !bytes.HasPrefix(buf[headerLen:], msg[headerLen:min(question, headerLen+len(wireName(b.Question[0].Name))+4)]) {
		t.Fatalf("fast answers %x, slow %x to %x", buf[:n], out, msg)
	}
	if len(a.Ns) == 0 && !bytes.Equal(buf[:n], out) {
		t.Fatalf("fast and slow differ in bytes\n%x\n%x", buf[:n], out)
	}
	if event.Rcode != slow.Rcode || event.Qtype != slow.Qtype || event.Stale != slow.Stale || event.Count != 1 {
		t.Fatalf("events %+v and %+v", event, slow)
	}
	return true
}

func newHTTPSSnapshot() *fakeSnapshot {
	w := newFakeSnapshot()
	w.httpsPort = 8443
	return w
}

// TestFastPathTakesTheCommonCase checks that the fast path does not decline the usual queries of resolvers.
func TestFastPathTakesTheCommonCase(t *testing.T) {
	p := newPathPair(newHTTPSSnapshot())
	for _, name := range []string{"chat.api.example.", "ChAt.aPi.ExAmPlE.", "eu.chat.api.example.", "six.deep.api.example.", "wide.api.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB} {
			q := plainQuery(name, qtype)
			for what, msg := range map[string][]byte{
				"plain": q, "RD": setFlags(q, bitRD), "CD and AD": setFlags(q, bitCD|bitAD), "EDNS": appendOPT(q, 1232, bitDO, nil),
				"subnet": appendOPT(q, 4096, 0, encodeSubnet(1, 24, 0, 81, 2, 69)), "IPv6 subnet": appendOPT(q, 512, 0, encodeSubnet(2, 32, 0, 0x20, 1, 0xd, 0xb8)),
				"subnet withheld": appendOPT(q, 1232, 0, encodeSubnet(1, 0, 0)), "cookie": appendOPT(q, 1232, 0, encodeOption(10, make([]byte, 8)...)),
				"padding": appendOPT(q, 1232, 0, encodeOption(12, make([]byte, 300)...)), "unknown": appendOPT(q, 1232, 0, encodeOption(100, 1)),
				"keepalive": appendOPT(q, 1232, 0, encodeOption(11)),
			} {
				if !p.checkAgree(t, msg, defaultAddr) {
					t.Errorf("%s %s %s is declined", name, dns.TypeToString[qtype], what)
				}
			}
		}
	}
}

func TestFastPathDeclinesUnusualQueries(t *testing.T) {
	p := newPathPair(newFakeSnapshot())
	q := plainQuery("chat.api.example.", dns.TypeA)
	for what, msg := range map[string][]byte{
		"TXT": plainQuery("chat.api.example.", dns.TypeTXT), "ANY": plainQuery("chat.api.example.", dns.TypeANY),
		"nothing there": plainQuery("nope.api.example.", dns.TypeA), "nowhere to send to": plainQuery("idle.api.example.", dns.TypeA),
		"apex": plainQuery("api.example.", dns.TypeA), "root": plainQuery(".", dns.TypeA), "NSID": appendOPT(q, 1232, 0, encodeOption(3)),
		"zone version": appendOPT(q, 1232, 0, encodeOption(19)), "version 1": appendOPT(q, 1232, 1<<16, nil), "trailing": append(slices.Clone(q), 0),
		"two OPT": appendOPT(appendOPT(q, 1232, 0, nil), 1232, 0, nil), "response": setFlags(q, bitQR), "opcode": setFlags(q, 4<<11), "empty": nil,
	} {
		if p.checkAgree(t, msg, defaultAddr) {
			t.Errorf("%s is not declined", what)
		}
	}
}

// TestPathsAgreeOnTheRules runs every rule's message through both paths.
func TestPathsAgreeOnTheRules(t *testing.T) {
	p, taken := newPathPair(newHTTPSSnapshot()), 0
	for _, set := range [][]protocolRule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		for _, r := range set {
			if p.checkAgree(t, r.raw, defaultAddr) {
				taken++
			}
		}
	}
	if taken < 20 {
		t.Errorf("the fast path took %d of the rules' messages", taken)
	}
}

// FuzzPathsAgree checks that the two paths never differ, for any message.
func FuzzPathsAgree(f *testing.F) {
	for _, set := range [][]protocolRule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		for _, r := range set {
			f.Add(r.raw, false, byte(4))
		}
	}
	f.Add(appendOPT(plainQuery("wide.api.example.", dns.TypeAAAA), 1232, 0, encodeSubnet(2, 56, 0, 0x20, 1, 0xd, 0xb8, 1, 2, 3)), true, byte(100))
	f.Add(appendOPT(plainQuery("CHAT.api.example.", dns.TypeHTTPS), 512, bitDO, encodeOption(10, make([]byte, 24)...)), true, byte(1))
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSVCB} {
		f.Add(appendOPT(plainQuery("WIDE.api.example.", qtype), 900, bitDO|0x4000, nil), false, byte(9))
	}
	signer := newFakeSnapshot().signWith(f, CDSPublish, newTestKey(f, 1)).zone.Signer
	f.Fuzz(func(t *testing.T, msg []byte, six bool, many byte) {
		w := newHTTPSSnapshot()
		w.addrCount = int(many)
		from := defaultAddr
		if six {
			from = netip.MustParseAddr("2001:db8:44::1")
		}
		newPathPair(w).checkAgree(t, msg, from)
		w.zone.Signer = signer
		p := newPathPair(w)
		p.checkAgree(t, msg, from)
		p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, from, UDP) // makes the signatures that the fast path lacks
		p.checkAgree(t, msg, from)
	})
}

func TestFastPathAllocatesNothing(t *testing.T) {
	w := newStaticSnapshot()
	p := newPathPair(nil)
	p.slow.snapshot = func() Snapshot { return w }
	p.slow.limiter = newResponseLimiter(1e6, 1)
	buf := make([]byte, maxUDPSize)
	now := time.Now()
	cookie := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for what, msg := range map[string][]byte{
		"plain":   plainQuery("chat.api.example.", dns.TypeA),
		"subnet":  appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeSubnet(1, 24, 0, 81, 2, 69)),
		"nothing": appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, 0, encodeOption(10, cookie...)),
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, _, ok := p.fast.answerQuery(buf, msg, defaultAddr, now); !ok {
				t.Fatal("declined")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// staticSnapshot has prepared answers, like a snapshot in production.
type staticSnapshot struct {
	*fakeSnapshot
	answer ServiceAnswer
}

func newStaticSnapshot() *staticSnapshot {
	w := newFakeSnapshot()
	return &staticSnapshot{w, w.AnswerService(chatID, defaultAddr)}
}

func (s *staticSnapshot) AnswerService(int, netip.Addr) ServiceAnswer { return s.answer }

func BenchmarkFastPath(b *testing.B) {
	w := newStaticSnapshot()
	p := newPathPair(nil)
	p.slow.snapshot = func() Snapshot { return w }
	buf, now := make([]byte, maxUDPSize), time.Now()
	for what, msg := range map[string][]byte{
		"plain":  plainQuery("chat.api.example.", dns.TypeA),
		"subnet": appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeSubnet(1, 24, 0, 81, 2, 69)),
		"cookie": appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(10, 1, 2, 3, 4, 5, 6, 7, 8)),
		"nodata": appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, 0, nil),
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := p.fast.answerQuery(buf, msg, defaultAddr, now); !ok {
					b.Fatal("declined")
				}
			}
		})
	}
}
