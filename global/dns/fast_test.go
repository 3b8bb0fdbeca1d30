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

// paths are both ways to an answer over one world.
type paths struct {
	fast fast
	slow handler
}

func newPaths(w *world) *paths {
	secrets := []Secret{{1, 2, 3}}
	p := &paths{slow: handler{
		view: func() View { return w }, secrets: func() []Secret { return secrets }, nsid: "g1", debug: true, idle: 100,
	}}
	p.fast = newFast(&p.slow)
	return p
}

// agree holds that the fast path declines a message or answers it as the library's path does, and reports which.
func (p *paths) agree(t testing.TB, msg []byte, from netip.Addr) bool {
	t.Helper()
	buf := make([]byte, ourSize)
	before := slices.Clone(msg)
	n, outcome, ok := p.fast.answer(buf, msg, from, time.Now())
	event := outcome.event(1)
	if !bytes.Equal(before, msg) {
		t.Fatalf("the query was written to: %x", msg)
	}
	if !ok {
		return false
	}
	out, slow, sent := p.slow.handle(make([]byte, 0, 2*ourSize), msg, from, UDP)
	if !sent {
		t.Fatalf("fast answers %x, slow does not: %x", buf[:n], msg)
	}
	a, b := unpack(t, buf[:n]), unpack(t, out)
	for _, m := range []*dns.Msg{a, b} { // the library's path writes the SOA in lower case, whatever the question's is
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
	if event.Rcode != slow.Rcode || event.Qtype != slow.Qtype || event.Stale != slow.Stale || event.N != 1 {
		t.Fatalf("events %+v and %+v", event, slow)
	}
	return true
}

func differentWorld() *world {
	w := newWorld()
	w.https = 8443
	return w
}

// TestFastPathTakesTheCommonCase holds that what resolvers mostly ask is declined no more.
func TestFastPathTakesTheCommonCase(t *testing.T) {
	p := newPaths(differentWorld())
	for _, name := range []string{"chat.api.example.", "ChAt.aPi.ExAmPlE.", "eu.chat.api.example.", "six.deep.api.example.", "wide.api.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB} {
			q := query1(name, qtype)
			for what, msg := range map[string][]byte{
				"plain": q, "RD": flags(q, bitRD), "CD and AD": flags(q, bitCD|bitAD), "EDNS": edns(q, 1232, bitDO, nil),
				"subnet": edns(q, 4096, 0, ecs(1, 24, 0, 81, 2, 69)), "IPv6 subnet": edns(q, 512, 0, ecs(2, 32, 0, 0x20, 1, 0xd, 0xb8)),
				"subnet withheld": edns(q, 1232, 0, ecs(1, 0, 0)), "cookie": edns(q, 1232, 0, opt1(10, make([]byte, 8)...)),
				"padding": edns(q, 1232, 0, opt1(12, make([]byte, 300)...)), "unknown": edns(q, 1232, 0, opt1(100, 1)),
				"keepalive": edns(q, 1232, 0, opt1(11)),
			} {
				if !p.agree(t, msg, home) {
					t.Errorf("%s %s %s is declined", name, dns.TypeToString[qtype], what)
				}
			}
		}
	}
}

func TestFastPathDeclinesWhatIsNotPlain(t *testing.T) {
	p := newPaths(newWorld())
	q := query1("chat.api.example.", dns.TypeA)
	for what, msg := range map[string][]byte{
		"TXT": query1("chat.api.example.", dns.TypeTXT), "ANY": query1("chat.api.example.", dns.TypeANY),
		"nothing there": query1("nope.api.example.", dns.TypeA), "nowhere to send to": query1("idle.api.example.", dns.TypeA),
		"apex": query1("api.example.", dns.TypeA), "root": query1(".", dns.TypeA), "NSID": edns(q, 1232, 0, opt1(3)),
		"zone version": edns(q, 1232, 0, opt1(19)), "version 1": edns(q, 1232, 1<<16, nil), "trailing": append(slices.Clone(q), 0),
		"two OPT": edns(edns(q, 1232, 0, nil), 1232, 0, nil), "response": flags(q, bitQR), "opcode": flags(q, 4<<11), "empty": nil,
	} {
		if p.agree(t, msg, home) {
			t.Errorf("%s is not declined", what)
		}
	}
}

// TestPathsAgreeOnTheRules runs every rule's message through both.
func TestPathsAgreeOnTheRules(t *testing.T) {
	p, taken := newPaths(differentWorld()), 0
	for _, set := range [][]rule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		for _, r := range set {
			if p.agree(t, r.raw, home) {
				taken++
			}
		}
	}
	if taken < 20 {
		t.Errorf("the fast path took %d of the rules' messages", taken)
	}
}

// FuzzPathsAgree holds that the two paths never differ, whatever the message.
func FuzzPathsAgree(f *testing.F) {
	for _, set := range [][]rule{headerRules(), bodyRules(), ednsRules(), nameRules(), typeRules()} {
		for _, r := range set {
			f.Add(r.raw, false, byte(4))
		}
	}
	f.Add(edns(query1("wide.api.example.", dns.TypeAAAA), 1232, 0, ecs(2, 56, 0, 0x20, 1, 0xd, 0xb8, 1, 2, 3)), true, byte(100))
	f.Add(edns(query1("CHAT.api.example.", dns.TypeHTTPS), 512, bitDO, opt1(10, make([]byte, 24)...)), true, byte(1))
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSVCB} {
		f.Add(edns(query1("WIDE.api.example.", qtype), 900, bitDO|0x4000, nil), false, byte(9))
	}
	signer := newWorld().sign(f, ShowDS, newKey(f, 1)).zone.Signer
	f.Fuzz(func(t *testing.T, msg []byte, six bool, many byte) {
		w := differentWorld()
		w.many = int(many)
		from := home
		if six {
			from = netip.MustParseAddr("2001:db8:44::1")
		}
		newPaths(w).agree(t, msg, from)
		w.zone.Signer = signer
		p := newPaths(w)
		p.agree(t, msg, from)
		p.slow.handle(make([]byte, 0, 2*ourSize), msg, from, UDP) // makes the signatures that the fast path lacks
		p.agree(t, msg, from)
	})
}

func TestFastPathAllocatesNothing(t *testing.T) {
	w := newStill()
	p := newPaths(nil)
	p.slow.view = func() View { return w }
	p.slow.limiter = newLimiter(1e6, 1)
	buf := make([]byte, ourSize)
	now := time.Now()
	cookie := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for what, msg := range map[string][]byte{
		"plain":   query1("chat.api.example.", dns.TypeA),
		"subnet":  edns(query1("chat.api.example.", dns.TypeA), 1232, 0, ecs(1, 24, 0, 81, 2, 69)),
		"nothing": edns(query1("chat.api.example.", dns.TypeAAAA), 1232, 0, opt1(10, cookie...)),
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, _, ok := p.fast.answer(buf, msg, home, now); !ok {
				t.Fatal("declined")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// still is a world whose answers are made beforehand, as a view's are.
type still struct {
	*world
	given Answer
}

func newStill() *still {
	w := newWorld()
	return &still{w, w.Answer(chat, home)}
}

func (s *still) Answer(int, netip.Addr) Answer { return s.given }

func BenchmarkFast(b *testing.B) {
	w := newStill()
	p := newPaths(nil)
	p.slow.view = func() View { return w }
	buf, now := make([]byte, ourSize), time.Now()
	for what, msg := range map[string][]byte{
		"plain":  query1("chat.api.example.", dns.TypeA),
		"subnet": edns(query1("chat.api.example.", dns.TypeA), 1232, 0, ecs(1, 24, 0, 81, 2, 69)),
		"cookie": edns(query1("chat.api.example.", dns.TypeA), 1232, 0, opt1(10, 1, 2, 3, 4, 5, 6, 7, 8)),
		"nodata": edns(query1("chat.api.example.", dns.TypeAAAA), 1232, 0, nil),
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := p.fast.answer(buf, msg, home, now); !ok {
					b.Fatal("declined")
				}
			}
		})
	}
}
