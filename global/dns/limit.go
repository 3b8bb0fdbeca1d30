package dns

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/spillway-lb/spillway/global/dns/xdp"
)

// RateLimitResult is what response rate limiting did with an answer.
type RateLimitResult uint8

// The results.
const (
	RateLimitPassed  RateLimitResult = iota
	RateLimitSlipped                 // sent truncated: a client with a genuine address retries over TCP
	RateLimitDropped                 // not sent
)

// responseLimiter bounds how many answers of one class go to one network over UDP, so that the server cannot be used
// to flood a victim with spoofed queries. Each pair of network and class has a virtual clock that every answer
// advances by 1/rate; while it is more than a second ahead of the real clock, answers are limited (GCRA). The table
// has a fixed size. Pairs that fall on the same slot do not share it: the less recently used one is dropped. It is
// lock-free.
type responseLimiter struct {
	ticksPerAnswer uint64 // of one answer, in ticks
	maxTicksAhead  uint64 // how far ahead a clock may be, in ticks
	slipEvery      uint32
	seed           uint64
	startedAt      time.Time
	limitedCount   atomic.Uint32
	table          []atomic.Uint64 // tag<<tickBits | clock in ticks; 0: free
}

// A clock counts ticks of 2^-20 s for 194 days and then wraps: older entries then look long unused.
const (
	ticksPerSecond = 1 << 20
	tickBits       = 44
	tickMask       = 1<<tickBits - 1
	limiterSize    = 1 << 17 // entries; one mebibyte
	limiterWays    = 4       // slots in which a pair may be
)

// newResponseLimiter returns nil, which limits nothing, for a rate of 0 answers per second.
func newResponseLimiter(rate, slip int) *responseLimiter {
	if rate <= 0 {
		return nil
	}
	return &responseLimiter{
		ticksPerAnswer: max(ticksPerSecond/uint64(rate), 1), maxTicksAhead: ticksPerSecond, slipEvery: uint32(max(slip, 0)),
		seed: rand.Uint64(), startedAt: time.Now().Add(-time.Hour), table: make([]atomic.Uint64, limiterSize),
	}
}

// limitClass separates what an attacker could query: each service with the names below it, all absent names together,
// and all errors together.
type limitClass uint32

const (
	classError limitClass = iota
	classAbsent
	classZone
	classService
)

func classifyAnswer(rcode, service int) limitClass {
	switch {
	case rcode == dns.RcodeNameError:
		return classAbsent
	case rcode != dns.RcodeSuccess:
		return classError
	case service >= 0:
		return classService + limitClass(service)
	}
	return classZone
}

// limitAnswer passes the answer, truncates it, or returns nil. A nil limiter passes everything. Loopback addresses
// are not limited, because they cannot be spoofed from outside.
func (l *responseLimiter) limitAnswer(out []byte, to netip.Addr, c limitClass, now time.Time) ([]byte, RateLimitResult) {
	if l == nil || to.IsLoopback() || l.allowAnswer(to, c, now) {
		return out, RateLimitPassed
	}
	if l.slipEvery > 0 && l.limitedCount.Add(1)%l.slipEvery == 0 {
		return truncateAnswer(out), RateLimitSlipped
	}
	return nil, RateLimitDropped
}

// allowAnswer counts one answer and reports whether it is within the rate.
func (l *responseLimiter) allowAnswer(to netip.Addr, c limitClass, now time.Time) bool {
	key := l.hashKey(to, c)
	at := uint64(now.Sub(l.startedAt)/time.Microsecond) * ticksPerSecond / 1e6 & tickMask
	tag := key >> tickBits << tickBits
	slot, old := l.findSlot(key, tag)
	for {
		clock := old & tickMask
		if old&^tickMask != tag || at > clock || clock-at > tickMask/2 {
			clock = at
		}
		if clock-at > l.maxTicksAhead {
			return false
		}
		if slot.CompareAndSwap(old, tag|(clock+l.ticksPerAnswer)&tickMask) {
			return true
		}
		if old = slot.Load(); old&^tickMask != tag {
			return true // another goroutine replaced the entry: in a flood from so many networks one more answer does not matter
		}
	}
}

// findSlot returns the pair's entry, or the least recently used of its slots.
func (l *responseLimiter) findSlot(key, tag uint64) (*atomic.Uint64, uint64) {
	base := key % (limiterSize / limiterWays) * limiterWays
	slot, least := &l.table[base], l.table[base].Load()
	for i := range uint64(limiterWays) {
		v := l.table[base+i].Load()
		if v&^tickMask == tag && v != 0 {
			return &l.table[base+i], v
		}
		if v&tickMask < least&tickMask {
			slot, least = &l.table[base+i], v
		}
	}
	return slot, least
}

// hashKey hashes the network, a /24 or a /56, and the class. The seed is random per process, so that collisions cannot be
// constructed. The program in the kernel computes the same for IPv4.
func (l *responseLimiter) hashKey(to netip.Addr, c limitClass) uint64 {
	if to.Is4() {
		v4 := to.As4()
		return xdp.MixKey(uint64(binary.BigEndian.Uint32(v4[:])>>8)<<32|uint64(c), l.seed)
	}
	v6 := to.As16()
	return xdp.MixKey(xdp.MixKey(binary.BigEndian.Uint64(v6[:])>>8, l.seed)^uint64(c), l.seed)
}

// truncateAnswer removes the records from an answer and keeps the question and the OPT record, which is last.
func truncateAnswer(b []byte) []byte {
	end := headerLen
	if binary.BigEndian.Uint16(b[4:]) == 1 {
		if end = skipName(b, headerLen); end < 0 {
			return b
		}
		end += 4
	}
	opt := findOPT(b, end)
	b[2] |= 0x02
	clear(b[6:headerLen])
	if opt < 0 {
		return b[:end]
	}
	b[11] = 1
	return append(b[:end], b[opt:]...)
}

// findOPT returns the offset of the answer's OPT record, or -1.
func findOPT(b []byte, off int) int {
	n := 0
	for i := 6; i < headerLen; i += 2 {
		n += int(binary.BigEndian.Uint16(b[i:]))
	}
	for range n {
		r, next, ok := readRecord(b, off)
		if !ok {
			return -1
		}
		if r.rtype == dns.TypeOPT {
			return off
		}
		off = next
	}
	return -1
}

// coarseClock returns the time with one reading of a system clock, where time.Now takes two. The wall clock is read
// seldom and advanced by the monotonic clock. It belongs to one goroutine.
type coarseClock struct{ readAt time.Time }

// clockReadInterval is how long one reading of the wall clock is used. Its users, cookies, count in seconds.
const clockReadInterval = time.Second

func (c *coarseClock) currentTime() time.Time {
	if passed := time.Since(c.readAt); passed < clockReadInterval {
		return c.readAt.Add(passed)
	}
	c.readAt = time.Now()
	return c.readAt
}
