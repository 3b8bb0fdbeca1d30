package regional

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// refusalBurst and refusalRate bound the invalid tokens and tickets of one client address that are checked: a
	// burst, and a rate per second after it. A signature check takes about 0.1 ms of CPU, so an address that sends
	// only invalid ones takes a thousandth of a core.
	refusalBurst = 50
	refusalRate  = 10.0
	// maxRefusalAddrs bounds the addresses that are kept, about 1 MiB. Beyond it an arbitrary one is evicted.
	maxRefusalAddrs = 1 << 13
)

// refusalLimiter counts refused tokens and tickets by client address.
type refusalLimiter struct {
	mu     sync.Mutex
	levels map[netip.Addr]refusalLevel
}

// refusalLevel is the number of refusals that count at a moment; it decreases by refusalRate per second.
type refusalLevel struct {
	count float64
	at    time.Time
}

// refusalCount returns how many refusals count at now.
func refusalCount(l refusalLevel, now time.Time) float64 {
	return max(l.count-refusalRate*max(now.Sub(l.at), 0).Seconds(), 0)
}

// isExhausted reports whether tokens and tickets of an address are not checked at now. An unknown address has no
// bound.
func (r *refusalLimiter) isExhausted(a netip.Addr, now time.Time) bool {
	if !a.IsValid() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.levels[clientKeyOf(a)]
	return ok && refusalCount(l, now) > refusalBurst-1
}

// addRefusal counts a refusal.
func (r *refusalLimiter) addRefusal(a netip.Addr, now time.Time) {
	if !a.IsValid() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.levels == nil {
		r.levels = map[netip.Addr]refusalLevel{}
	}
	a = clientKeyOf(a)
	l, ok := r.levels[a]
	if !ok && len(r.levels) >= maxRefusalAddrs {
		r.evictRefusals(now)
	}
	r.levels[a] = refusalLevel{refusalCount(l, now) + 1, now}
}

// evictRefusals makes room: it deletes addresses without recent refusals, or else an arbitrary one.
func (r *refusalLimiter) evictRefusals(now time.Time) {
	for a, l := range r.levels {
		if refusalCount(l, now) == 0 {
			delete(r.levels, a)
		}
	}
	for a := range r.levels {
		if len(r.levels) < maxRefusalAddrs {
			return
		}
		delete(r.levels, a)
	}
}

// clientLimiter counts the requests in flight per client address. Entries without requests are deleted, so there
// are never more entries than requests.
type clientLimiter struct {
	mu     sync.Mutex
	counts map[netip.Addr]int
}

// clientKeyOf returns the key that counts as one client: an IPv4 address, or the /64 of an IPv6 host (RFC 4291,
// 2.5.4).
func clientKeyOf(a netip.Addr) netip.Addr {
	if a.Is4() || !a.IsValid() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

// addRequest adds a request; false when the client already has limit requests in flight. An unknown address has no
// limit.
func (c *clientLimiter) addRequest(a netip.Addr, limit int) bool {
	if !a.IsValid() {
		return true
	}
	a = clientKeyOf(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[netip.Addr]int{}
	}
	if c.counts[a] >= limit {
		return false
	}
	c.counts[a]++
	return true
}

func (c *clientLimiter) removeRequest(a netip.Addr) {
	if !a.IsValid() {
		return
	}
	a = clientKeyOf(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[a]--; c.counts[a] <= 0 {
		delete(c.counts, a)
	}
}
