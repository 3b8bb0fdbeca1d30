package dns

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Limited is what response rate limiting did to an answer.
type Limited uint8

// The outcomes.
const (
	Unlimited Limited = iota
	Slipped           // sent, but truncated: who is where it says comes again over TCP
	Withheld          // not sent
)

// limiter bounds how many answers of one class go to one network over UDP, so that nobody is flooded in another's
// name. Each pair of network and class has a virtual clock that every answer advances by 1/rate; while it is more than
// a second ahead of the real one there is no more (GCRA). The table is fixed and never grows: two pairs that fall on
// the same place share nothing, the one that was used longer ago is forgotten. Nobody waits for anybody in it.
type limiter struct {
	cost  uint64 // of one answer, in ticks
	burst uint64 // how far ahead a clock may be, in ticks
	slip  uint32
	seed  maphash.Seed
	begin time.Time
	slips atomic.Uint32
	table []atomic.Uint64 // tag<<tickBits | clock in ticks; 0: free
}

// A clock counts ticks of 2^-20 s for 194 days and then starts again: what is in the table by then reads as long ago.
const (
	ticksPerSecond = 1 << 20
	tickBits       = 44
	tickMask       = 1<<tickBits - 1
	limiterSize    = 1 << 17 // entries; one mebibyte
	limiterWays    = 4       // places where a pair may stand
)

// newLimiter returns nil, which limits nobody, for a rate of 0 answers per second.
func newLimiter(rate, slip int) *limiter {
	if rate <= 0 {
		return nil
	}
	return &limiter{
		cost: max(ticksPerSecond/uint64(rate), 1), burst: ticksPerSecond, slip: uint32(max(slip, 0)),
		seed: maphash.MakeSeed(), begin: time.Now().Add(-time.Hour), table: make([]atomic.Uint64, limiterSize),
	}
}

// class tells apart what an attacker could ask for: each service with the names below it, all absent names together, and all errors together.
type class uint32

const (
	classError class = iota
	classAbsent
	classZone
	classService
)

func classOf(rcode, service int) class {
	switch {
	case rcode == dns.RcodeNameError:
		return classAbsent
	case rcode != dns.RcodeSuccess:
		return classError
	case service >= 0:
		return classService + class(service)
	}
	return classZone
}

// apply lets the answer pass, truncates it, or returns nil. A nil limiter lets everything pass, and nobody speaks in
// the name of a loopback address.
func (l *limiter) apply(out []byte, to netip.Addr, c class, now time.Time) ([]byte, Limited) {
	if l == nil || to.IsLoopback() || l.take(to, c, now) {
		return out, Unlimited
	}
	if l.slip > 0 && l.slips.Add(1)%l.slip == 0 {
		return truncated(out), Slipped
	}
	return nil, Withheld
}

// take counts one answer and reports whether it is within the rate.
func (l *limiter) take(to netip.Addr, c class, now time.Time) bool {
	key := l.key(to, c)
	at := uint64(now.Sub(l.begin)/time.Microsecond) * ticksPerSecond / 1e6 & tickMask
	tag := key >> tickBits << tickBits
	slot, old := l.place(key, tag)
	for {
		clock := old & tickMask
		if old&^tickMask != tag || at > clock || clock-at > tickMask/2 {
			clock = at
		}
		if clock-at > l.burst {
			return false
		}
		if slot.CompareAndSwap(old, tag|(clock+l.cost)&tickMask) {
			return true
		}
		if old = slot.Load(); old&^tickMask != tag {
			return true // it was taken from us: under such a flood of networks one more answer does not matter
		}
	}
}

// place finds the pair's entry, or the one of its places that was used longest ago.
func (l *limiter) place(key, tag uint64) (*atomic.Uint64, uint64) {
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

// key hashes the network and the class. The seed is this process's own, so that nobody can aim at another's entry.
func (l *limiter) key(to netip.Addr, c class) uint64 {
	var b [21]byte
	a := to.As16()
	n := copy(b[:], a[:7]) // a /56
	if to.Is4() {
		n = copy(b[:], a[12:15]) // a /24
		b[n] = 4
		n++
	}
	n += 4
	binary.BigEndian.PutUint32(b[n-4:], uint32(c))
	return maphash.Bytes(l.seed, b[:n])
}

// truncated takes the records out of an answer of ours and leaves question and OPT, which stands last.
func truncated(b []byte) []byte {
	end := headerLen
	if binary.BigEndian.Uint16(b[4:]) == 1 {
		if end = skipName(b, headerLen); end < 0 {
			return b
		}
		end += 4
	}
	opt := lastOPT(b, end)
	b[2] |= 0x02
	clear(b[6:headerLen])
	if opt < 0 {
		return b[:end]
	}
	b[11] = 1
	return append(b[:end], b[opt:]...)
}

// lastOPT finds where the answer's OPT record begins, or -1.
func lastOPT(b []byte, off int) int {
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
