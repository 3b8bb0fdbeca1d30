package fleet

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// TestForgedSubnetsAndMalformedQueriesChangeNoAnswer: one resolver claims every /24 of a /8 as its client's, and
// sends as many malformed queries. No other answer changes, each answer names the subnet of its query, and memory
// does not grow.
func TestForgedSubnetsAndMalformedQueriesChangeNoAnswer(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, Layout: Layout{Globals: 1, Regions: 3, Workers: 1}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		evil := netip.MustParseAddr("198.18.0.1")
		rng := rand.New(rand.NewPCG(1, 1))
		sweep := func() {
			for i := range 1 << 16 {
				sub := netip.AddrFrom4([4]byte{21, byte(i >> 8), byte(i), 0})
				msg, ok := p.Globals[0].AnswerDNS(nil, withSubnet(t, ServiceName, sub), evil)
				a, err := parseAnswer(msg)
				if !ok || err != nil || p.RegionOf(a.Addr) != 1 {
					t.Fatalf("a client of %s is sent to %+v (%v)", sub, a, err)
				}
				junk := make([]byte, rng.IntN(80))
				for k := range junk {
					junk[k] = byte(rng.Uint32())
				}
				p.Globals[0].AnswerDNS(nil, junk, evil)
				q := withSubnet(t, ServiceName, sub)
				q[12+rng.IntN(len(q)-12)] ^= byte(1 + rng.IntN(255))
				p.Globals[0].AnswerDNS(nil, q, evil)
			}
		}
		before := routedAddrs(t, p)
		sweep() // after this, what the first sweep stores is in memory
		one := heapBytes()
		sweep()
		if two := heapBytes(); two > one+4<<20 {
			t.Errorf("the heap grows from %d to %d bytes in one more sweep", one, two)
		}
		if after := routedAddrs(t, p); after != before {
			t.Errorf("clients were sent to %v, and are sent to %v after the sweep", before, after)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// routedAddrs is the address that each location's client gets, by its resolver and by a subnet option of another
// resolver.
func routedAddrs(t *testing.T, p *InMemory) (out [6]netip.Addr) {
	t.Helper()
	for r := range 3 {
		a, err := p.QueryDNS(0, ClientAddr(r, 9), ServiceName)
		if err != nil {
			t.Fatal(err)
		}
		msg, _ := p.Globals[0].AnswerDNS(nil, withSubnet(t, ServiceName, ClientAddr(r, 9)), ClientAddr((r+1)%3, 1))
		b, err := parseAnswer(msg)
		if err != nil {
			t.Fatal(err)
		}
		out[2*r], out[2*r+1] = a.Addr, b.Addr
	}
	return out
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// withSubnet is a query with the client's /24 (RFC 7871).
func withSubnet(t *testing.T, name string, client netip.Addr) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	a := client.As4()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 9})
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(1232, 0, false); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		b.StartQuestions(), b.Question(dnsmessage.Question{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}), b.StartAdditionals(),
		b.OPTResource(h, dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 8, Data: []byte{0, 1, 24, 0, a[0], a[1], a[2]}}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	msg, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}
