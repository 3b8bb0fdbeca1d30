package regional

import (
	"net/netip"
	"sync"
)

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
