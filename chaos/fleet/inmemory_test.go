package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// TestFleetRunsInSynctestBubble starts a fleet, advances an hour, and sends a request from each location.
func TestFleetRunsInSynctestBubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, Layout: Layout{Globals: 3, Regions: 3, Workers: 2}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for r := range 3 {
			for node := range 3 {
				a, err := p.QueryDNS(node, ClientAddr(r, 1), ServiceName)
				if err != nil || p.RegionOf(a.Addr) != r {
					t.Errorf("node %d sends region %d's client to %+v (%v)", node, r, a, err)
				}
			}
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionsStayInZoneHoldingTheirPrefix: conversations of 4,000 and more tokens without a session name, sent
// through either of two gateways, stay in the zone that computed them: the gateway that sent them there has recorded
// it, and the other learns it from the zone's sketch. (Without both, three in ten of the later turns go elsewhere.)
func TestSessionsStayInZoneHoldingTheirPrefix(t *testing.T) {
	dir := t.TempDir()
	const sessions, turns = 16, 6
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, Layout: Layout{Globals: 1, Regions: 1, Gateways: 2, Zones: 2, Workers: 2}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c := p.NewHTTPCaller()
		var mu sync.Mutex
		var all sync.WaitGroup
		kept, moved := 0, 0
		var first, later []time.Duration
		for s := range sessions {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(s), 5))
				time.Sleep(time.Duration(rng.IntN(30_000)) * time.Millisecond)
				text := randomText(rng, 16<<10)
				zone := ""
				for turn := range turns {
					r := c.PostCompletion(context.Background(), ClientAddr(0, s), GatewayHostOf(0, rng.IntN(2)), text, 8)
					mu.Lock()
					switch {
					case r.Err != nil || r.Status != 200:
						t.Errorf("session %d turn %d: %+v", s, turn, r)
					case zone == "":
						first = append(first, r.FirstByteAfter)
					case zone == r.Zone:
						kept++
						later = append(later, r.FirstByteAfter)
					default:
						moved++
						later = append(later, r.FirstByteAfter)
					}
					zone = r.Zone
					mu.Unlock()
					text += randomText(rng, 1<<10)
					time.Sleep(time.Duration(4000+rng.IntN(2000)) * time.Millisecond)
				}
			})
		}
		all.Wait()
		t.Logf("of %d later turns %d kept their zone and %d did not; first turns began after %s, later ones after %s on average",
			kept+moved, kept, moved, meanDuration(first), meanDuration(later))
		if kept < 5*moved {
			t.Errorf("%d turns kept their zone, %d did not", kept, moved)
		}
		c.Close()
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// randomText is random text with a unique beginning.
func randomText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%07d ", rng.IntN(1e7))
	}
	return b.String()
}

func meanDuration(ds []time.Duration) (m time.Duration) {
	for _, d := range ds {
		m += d / time.Duration(len(ds))
	}
	return m.Round(time.Millisecond)
}

// TestALocalInstanceIsReplacedWithinTwoSeconds: a zone of three instances divides its workers among them. One is
// killed under load: within two seconds the others serve its workers, no worker is counted twice meanwhile, and no
// client gets an error. When it is back, its workers return. Without gateways the instances detect the failure by
// their own heartbeats.
func TestALocalInstanceIsReplacedWithinTwoSeconds(t *testing.T) {
	dir := t.TempDir()
	const workers = 6
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, KeepState: true, Layout: Layout{Globals: 1, Regions: 1, Gateways: 2, Locals: 3, Workers: workers}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Fatalf("%d of %d workers are counted", n, workers)
		}
		for i, a := range p.Locals[0] {
			s := a.Summary(time.Now())
			t.Logf("instance %d serves %d workers", i, s.FindModel(memoryModel).Ready)
		}
		stop := startRequests(t, p)
		victim := busiestInstance(p)
		begun := time.Now()
		killLocal(t, p, victim)
		took := waitAllServed(t, p, workers, begun)
		t.Logf("killed instance %d: all %d workers are served again after %s", victim, workers, took)
		if took > 2*time.Second {
			t.Errorf("the dead instance's workers are taken over after %s", took)
		}
		time.Sleep(5 * time.Second)

		if err := p.StartLocal(t.Context(), 0, victim); err != nil {
			t.Fatal(err)
		}
		over := overcountedTime(p, workers, 10*time.Second)
		t.Logf("back: workers are counted more than once for %s in all", over)
		if over > 500*time.Millisecond {
			t.Errorf("workers are counted more than once for %s", over)
		}
		if n := p.CountReadyWorkers(0); n != workers || readyAt(p, victim) == 0 {
			t.Errorf("%d workers are counted, %d of them by the one that is back", n, readyAt(p, victim))
		}
		if failed := stop(); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}

		for g := range 2 {
			p.Net.CutHost(GatewayHostOf(0, g))
		}
		time.Sleep(10 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Errorf("without gateways %d of %d workers are counted", n, workers)
		}
		begun = time.Now()
		killLocal(t, p, busiestInstance(p))
		if took := waitAllServed(t, p, workers, begun); took > 2*time.Second {
			t.Errorf("without gateways a dead instance's workers are taken over after %s", took)
		}
		for g := range 2 {
			p.Net.RestoreHost(GatewayHostOf(0, g))
		}
		time.Sleep(20 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Errorf("with gateways back %d of %d workers are counted", n, workers)
		}
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func readyAt(p *InMemory, i int) int64 {
	s := p.Locals[0][i].Summary(time.Now())
	if m := s.FindModel(memoryModel); m != nil {
		return m.Ready
	}
	return 0
}

// busiestInstance is the instance with the most workers.
func busiestInstance(p *InMemory) (best int) {
	most := int64(-1)
	for i, a := range p.Locals[0] {
		if a != nil && readyAt(p, i) > most {
			best, most = i, readyAt(p, i)
		}
	}
	return best
}

func killLocal(t *testing.T, p *InMemory, i int) {
	t.Helper()
	if err := p.KillLocal(0, i); err != nil {
		t.Fatal(err)
	}
}

// waitAllServed waits until every worker is counted by a running instance, and checks that none is counted by two.
func waitAllServed(t *testing.T, p *InMemory, workers int64, begun time.Time) time.Duration {
	t.Helper()
	for time.Since(begun) < 10*time.Second {
		switch n := p.CountReadyWorkers(0); {
		case n == workers:
			return time.Since(begun)
		case n > workers:
			t.Errorf("%s after the kill %d workers are counted, there are %d", time.Since(begun), n, workers)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// overcountedTime is how long more workers are counted than exist.
func overcountedTime(p *InMemory, workers int64, during time.Duration) (over time.Duration) {
	const step = 5 * time.Millisecond
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(step) {
		if p.CountReadyWorkers(0) > workers {
			over += step
		}
	}
	return over
}

// startRequests sends requests to both gateways until the returned function is called, which returns the number of
// failures.
func startRequests(t *testing.T, p *InMemory) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := p.NewHTTPCaller()
	var failed atomic.Int64
	var flying sync.WaitGroup
	flying.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			flying.Go(func() {
				if r := c.PostCompletion(context.Background(), ClientAddr(0, n%50), GatewayHostOf(0, n%2), "tell me", 16); r.Err != nil || r.Status != 200 {
					failed.Add(1)
					t.Logf("request %d: %+v", n, r)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() int64 {
		cancel()
		flying.Wait()
		c.Close()
		return failed.Load()
	}
}

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
