package dns

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func testAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestLimiterHoldsTheRatePerNetworkAndClass(t *testing.T) {
	l, now := newResponseLimiter(100, 1), time.Now()
	count := func(a string, c limitClass, n int) (passed int) {
		for range n {
			if l.allowAnswer(netip.MustParseAddr(a), c, now) {
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
		class limitClass
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

// TestLimiterNeverExceedsItsRate draws gaps between answers and checks the bound over the whole time.
func TestLimiterNeverExceedsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 5000).Draw(t, "rate")
		l, begin := newResponseLimiter(rate, 1), time.Now()
		now, passed := begin, 0
		for range 2000 {
			now = now.Add(time.Duration(rapid.IntRange(0, 3_000_000).Draw(t, "gap")))
			if l.allowAnswer(defaultAddr, classError, now) {
				passed++
			}
		}
		if most := float64(rate)*(now.Sub(begin).Seconds()+1)*1.01 + 2; float64(passed) > most {
			t.Fatalf("%d passed at %d/s in %s", passed, rate, now.Sub(begin))
		}
	})
}

func TestLimiterIsBoundedAndSurvivesASweep(t *testing.T) {
	l, now := newResponseLimiter(10, 1), time.Now()
	size := len(l.table)
	for i := range 1 << 18 { // a /6 of /24 networks
		l.allowAnswer(testAddr(i<<8), classError, now)
	}
	if len(l.table) != size {
		t.Error("the table grew")
	}
	passed := 0
	for range 100 {
		if l.allowAnswer(netip.MustParseAddr("198.51.100.1"), classError, now) {
			passed++
		}
	}
	if passed > 12 {
		t.Errorf("%d of 100 passed during a sweep, want 11", passed)
	}
}

func TestLimiterFromManyGoroutines(t *testing.T) {
	l, now := newResponseLimiter(1000, 1), time.Now()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if l.allowAnswer(defaultAddr, classError, now) {
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

func TestLimitedAnswersSlipTruncated(t *testing.T) {
	msg := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, bitDO, encodeSubnet(1, 24, 0, 81, 2, 69))
	for slip, want := range map[int][2]int{1: {90, 0}, 2: {45, 45}, 0: {0, 90}} {
		p := newPathPair(newFakeSnapshot())
		p.slow.limiter = newResponseLimiter(1, slip)
		p.slow.limiter.maxTicksAhead = 9 * ticksPerSecond
		var sent, slipped, withheld int
		buf := make([]byte, maxUDPSize)
		now := time.Now()
		for range 100 {
			n, event, ok := p.fast.answerQuery(buf, msg, defaultAddr, now)
			switch {
			case !ok:
				t.Fatal("declined")
			case event.rateLimit == RateLimitDropped && n == 0:
				withheld++
			case event.rateLimit == RateLimitSlipped:
				slipped++
				if m := unpackMessage(t, buf[:n]); !m.Truncated || len(m.Answer) != 0 || findSubnet(m) == nil || !m.IsEdns0().Do() || len(m.Question) != 1 {
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

func TestRateLimitExemptions(t *testing.T) {
	p := newPathPair(newFakeSnapshot())
	p.slow.limiter = newResponseLimiter(1, 0)
	c := parseClientCookie(t, "0102030405060708")
	given, _ := c.checkCookie(p.slow.secrets(), defaultAddr, time.Now())
	for what, q := range map[string]struct {
		msg  []byte
		from netip.Addr
		by   Transport
	}{
		"a cookie of ours": {appendOPT(plainQuery("nope.api.example.", dns.TypeA), 1232, 0, encodeOption(10, given.data[:]...)), defaultAddr, UDP},
		"TCP":              {plainQuery("nope.api.example.", dns.TypeA), defaultAddr, TCP},
		"loopback":         {plainQuery("nope.api.example.", dns.TypeA), netip.MustParseAddr("127.0.0.1"), UDP},
	} {
		for range 20 {
			if _, event, ok := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), q.msg, q.from, q.by); !ok || event.RateLimit != RateLimitPassed {
				t.Fatalf("%s is limited: %+v", what, event)
			}
		}
	}
	var withheld int
	for range 20 {
		if _, event, ok := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), plainQuery("nope.api.example.", dns.TypeA), defaultAddr, UDP); !ok && event.RateLimit == RateLimitDropped {
			withheld++
		}
	}
	if withheld < 18 {
		t.Errorf("%d of 20 withheld without any", withheld)
	}
}

// A service and the names below it share one rate, on both paths: queries for other names get no more answers.
func TestNamesBelowAServiceShareItsRate(t *testing.T) {
	const rate = 20
	for _, path := range []string{"fast", "slow"} {
		p := newPathPair(newFakeSnapshot())
		p.slow.limiter = newResponseLimiter(rate, 0)
		now, sent := time.Now(), 0
		for range 3 * rate {
			for _, name := range []string{"chat.api.example.", "eu.chat.api.example."} {
				if path == "fast" {
					_, out, ok := p.fast.answerQuery(make([]byte, maxUDPSize), plainQuery(name, dns.TypeA), defaultAddr, now)
					if !ok {
						t.Fatal("not answered on the fast path")
					}
					if out.rateLimit == RateLimitPassed {
						sent++
					}
				} else if _, _, ok := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), plainQuery(name, dns.TypeA), defaultAddr, UDP); ok {
					sent++
				}
			}
		}
		if sent > rate+rate/2 {
			t.Errorf("%s: %d answers at once to one network, the rate is %d", path, sent, rate)
		}
	}
}

// TestCoarseClockMatchesTimeNow checks that coarseClock never differs from time.Now and keeps its monotonic part.
func TestCoarseClockMatchesTimeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarseClock
		for _, step := range []time.Duration{0, time.Millisecond, clockReadInterval - time.Nanosecond, clockReadInterval, time.Nanosecond, time.Hour, 1} {
			time.Sleep(step)
			if got, want := c.currentTime(), time.Now(); !got.Equal(want) || got.Round(0) != want.Round(0) || time.Since(got) != 0 {
				t.Fatalf("after %s the clock returns %s, want %s", step, got, want)
			}
		}
	})
}

func BenchmarkCoarseClock(b *testing.B) {
	var c coarseClock
	for b.Loop() {
		c.currentTime()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}
