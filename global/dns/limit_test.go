package dns

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestLimiterHoldsTheRatePerNetworkAndClass(t *testing.T) {
	l, now := newLimiter(100, 1), time.Now()
	count := func(a string, c class, n int) (passed int) {
		for range n {
			if l.take(netip.MustParseAddr(a), c, now) {
				passed++
			}
		}
		return passed
	}
	if n := count("192.0.2.1", classError, 1000); n < 100 || n > 102 {
		t.Errorf("%d passed at once, want a second's worth", n)
	}
	for what, c := range map[string]struct {
		addr  string
		class class
		fresh bool
	}{
		"the same /24":              {"192.0.2.200", classError, false},
		"another class":             {"192.0.2.1", classAbsent, true},
		"another service":           {"192.0.2.1", classService + 1, true},
		"another network":           {"192.0.3.1", classError, true},
		"IPv6 of the same octets":   {"c000:201::1", classError, true},
		"another /56 of the same":   {"c000:201:0:100::1", classError, true},
		"the same /56, another /64": {"c000:201:0:ff::1", classError, false},
	} {
		if what == "the same /56, another /64" {
			count("c000:201::1", classError, 1000)
		}
		if got := count(c.addr, c.class, 1) == 1; got != c.fresh && what != "IPv6 of the same octets" {
			t.Errorf("%s: passes %v, want %v", what, got, c.fresh)
		}
	}
	now = now.Add(time.Second / 2)
	if n := count("192.0.2.1", classError, 1000); n < 49 || n > 51 {
		t.Errorf("%d passed half a second later, want 50", n)
	}
	now = now.Add(time.Hour)
	if n := count("192.0.2.1", classError, 1000); n < 100 || n > 102 {
		t.Errorf("%d passed after an hour, want no more than a second's worth", n)
	}
}

// TestLimiterNeverExceedsItsRate draws gaps between answers and holds the bound over the whole.
func TestLimiterNeverExceedsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 5000).Draw(t, "rate")
		l, begin := newLimiter(rate, 1), time.Now()
		now, passed := begin, 0
		for range 2000 {
			now = now.Add(time.Duration(rapid.IntRange(0, 3_000_000).Draw(t, "gap")))
			if l.take(home, classError, now) {
				passed++
			}
		}
		if most := float64(rate)*(now.Sub(begin).Seconds()+1)*1.01 + 2; float64(passed) > most {
			t.Fatalf("%d passed at %d/s in %s", passed, rate, now.Sub(begin))
		}
	})
}

func TestLimiterIsBoundedAndSurvivesASweep(t *testing.T) {
	l, now := newLimiter(10, 1), time.Now()
	size := len(l.table)
	for i := range 1 << 18 { // a /6 of /24 networks
		l.take(addr(i<<8), classError, now)
	}
	if len(l.table) != size {
		t.Error("the table grew")
	}
	passed := 0
	for range 100 {
		if l.take(netip.MustParseAddr("198.51.100.1"), classError, now) {
			passed++
		}
	}
	if passed > 12 {
		t.Errorf("%d of 100 passed during a sweep, want 11", passed)
	}
}

func TestLimiterFromManyGoroutines(t *testing.T) {
	l, now := newLimiter(1000, 1), time.Now()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if l.take(home, classError, now) {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n < 1000 || n > 1010 {
		t.Errorf("%d passed, want 1001", n)
	}
}

func TestSlip(t *testing.T) {
	msg := edns(query1("chat.api.example.", dns.TypeA), 1232, bitDO, ecs(1, 24, 0, 81, 2, 69))
	for slip, want := range map[int][2]int{1: {90, 0}, 2: {45, 45}, 0: {0, 90}} {
		p := newPaths(newWorld())
		p.slow.limiter = newLimiter(1, slip)
		p.slow.limiter.burst = 9 * ticksPerSecond
		var sent, slipped, withheld int
		buf := make([]byte, ourSize)
		now := time.Now()
		for range 100 {
			n, event, ok := p.fast.answer(buf, msg, home, now)
			switch {
			case !ok:
				t.Fatal("declined")
			case event.limited == Withheld && n == 0:
				withheld++
			case event.limited == Slipped:
				slipped++
				if m := unpack(t, buf[:n]); !m.Truncated || len(m.Answer) != 0 || subnetOf(m) == nil || !m.IsEdns0().Do() || len(m.Question) != 1 {
					t.Fatalf("slipped %v", m)
				}
			default:
				sent++
			}
		}
		if sent != 10 || slipped != want[0] || withheld != want[1] {
			t.Errorf("slip %d: %d sent, %d slipped, %d withheld", slip, sent, slipped, withheld)
		}
	}
}

func TestWhoIsExemptFromTheLimit(t *testing.T) {
	p := newPaths(newWorld())
	p.slow.limiter = newLimiter(1, 0)
	c := clientOf(t, "0102030405060708")
	given, _ := c.check(p.slow.secrets(), home, time.Now())
	for what, q := range map[string]struct {
		msg  []byte
		from netip.Addr
		by   Transport
	}{
		"a cookie of ours": {edns(query1("nope.api.example.", dns.TypeA), 1232, 0, opt1(10, given.data[:]...)), home, UDP},
		"TCP":              {query1("nope.api.example.", dns.TypeA), home, TCP},
		"loopback":         {query1("nope.api.example.", dns.TypeA), netip.MustParseAddr("127.0.0.1"), UDP},
	} {
		for range 20 {
			if _, event, ok := p.slow.handle(make([]byte, 0, 2*ourSize), q.msg, q.from, q.by); !ok || event.Limited != Unlimited {
				t.Fatalf("%s is limited: %+v", what, event)
			}
		}
	}
	var withheld int
	for range 20 {
		if _, event, ok := p.slow.handle(make([]byte, 0, 2*ourSize), query1("nope.api.example.", dns.TypeA), home, UDP); !ok && event.Limited == Withheld {
			withheld++
		}
	}
	if withheld < 18 {
		t.Errorf("%d of 20 withheld without any", withheld)
	}
}

// A service and the names below it share one rate, on both paths: asking by other names gets no more answers.
func TestNamesBelowAServiceShareItsRate(t *testing.T) {
	const rate = 20
	for _, path := range []string{"fast", "slow"} {
		p := newPaths(newWorld())
		p.slow.limiter = newLimiter(rate, 0)
		now, sent := time.Now(), 0
		for range 3 * rate {
			for _, name := range []string{"chat.api.example.", "eu.chat.api.example."} {
				if path == "fast" {
					_, out, ok := p.fast.answer(make([]byte, ourSize), query1(name, dns.TypeA), home, now)
					if !ok {
						t.Fatal("not answered on the fast path")
					}
					if out.limited == Unlimited {
						sent++
					}
				} else if _, _, ok := p.slow.handle(make([]byte, 0, 2*ourSize), query1(name, dns.TypeA), home, UDP); ok {
					sent++
				}
			}
		}
		if sent > rate+rate/2 {
			t.Errorf("%s: %d answers at once to one network, the rate is %d", path, sent, rate)
		}
	}
}
