package regional

import (
	"net/http"
	"net/netip"
	"sync"
)

// client is who asks, as far as it can be told: the address of the connection or, behind trusted proxies, what they say.
// The address is invalid when there is none.
func (g *Gateway) client(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return g.cfg.Trusted.Client(ap.Addr().Unmap(), r.Header).Unmap()
}

// clients counts the requests under way of each address. An address without any is forgotten, so there are never more
// than requests.
type clients struct {
	mu     sync.Mutex
	counts map[netip.Addr]int
}

// site is what counts as one client: an IPv4 address, or the /64 that one IPv6 host has for itself (RFC 4291, 2.5.4).
func site(a netip.Addr) netip.Addr {
	if a.Is4() || !a.IsValid() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

// enter counts a request in; false when the client has limit of them already. An address that is not known has no limit.
func (c *clients) enter(a netip.Addr, limit int) bool {
	if !a.IsValid() {
		return true
	}
	a = site(a)
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

func (c *clients) leave(a netip.Addr) {
	if !a.IsValid() {
		return
	}
	a = site(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[a]--; c.counts[a] <= 0 {
		delete(c.counts, a)
	}
}
