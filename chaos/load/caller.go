package load

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// maxTransports bounds the addresses that one caller keeps connections to.
const maxTransports = 64

// caller is one client at work: its resolver and its connections.
type caller struct {
	client   Client
	bases    []*url.URL
	resolver *resolver // nil for fixed URLs
	tls      *tls.Config
	turn     atomic.Uint32

	mu         sync.Mutex
	transports map[string]*http.Transport
	dial       Dial // nil: the network
}

// errNowhere is returned when there is no address to send to.
var errNowhere = errors.New("the name has no address")

// choose returns where to send to next; false when every address was tried. For a service the answer in the cache
// counts as long as it says; after a failure the name is asked for anew, for patience, until there is an address that
// was not tried.
func (c *caller) choose(ctx context.Context, tried map[string]bool, patience time.Duration) (place, bool, error) {
	if c.resolver == nil {
		p := c.inTurn(tried)
		return p, !tried[p.addr], nil
	}
	p, untried, err := c.locate(ctx, c.bases[0], tried, false)
	for wait := 100 * time.Millisecond; len(tried) > 0 && !untried && patience > 0; wait *= 2 {
		p, untried, err = c.locate(ctx, c.bases[0], tried, true)
		if untried || !pause(ctx, min(wait, patience)) {
			break
		}
		patience -= wait
	}
	return p, untried, err
}

// pause waits; false when ctx was done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *caller) inTurn(tried map[string]bool) place {
	start := int(c.turn.Load())
	if len(tried) == 0 { // a retry takes nobody's turn
		start = int(c.turn.Add(1))
	}
	for i := range c.bases {
		base := c.bases[(start+i)%len(c.bases)]
		if p := literal(base); !tried[p.addr] {
			return p
		}
	}
	return literal(c.bases[start%len(c.bases)])
}

// literal is the place of a URL whose host is connected to as it is written.
func literal(base *url.URL) place {
	return place{base: base, addr: net.JoinHostPort(base.Hostname(), portOf(base))}
}

// locate resolves a URL's host and takes its first address that was not tried; untried is false when all were.
func (c *caller) locate(ctx context.Context, base *url.URL, tried map[string]bool, again bool) (p place, untried bool, err error) {
	host := base.Hostname()
	if _, err := netip.ParseAddr(host); err == nil || c.resolver == nil {
		p := literal(base)
		return p, !tried[p.addr], nil
	}
	addrs, err := c.resolver.lookup(ctx, host, again)
	if err != nil {
		return place{}, false, err
	}
	for _, a := range addrs {
		p := place{base: base, addr: net.JoinHostPort(a.Unmap().String(), portOf(base))}
		if !tried[p.addr] {
			return p, true, nil
		}
	}
	if len(addrs) == 0 {
		return place{}, false, errNowhere
	}
	return place{base: base, addr: net.JoinHostPort(addrs[0].Unmap().String(), portOf(base))}, false, nil
}

// transport returns the connections to one address. They are kept by address and not by name, so that a new DNS answer
// takes effect with the next request.
func (c *caller) transport(addr string) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.transports[addr]; t != nil {
		return t
	}
	if len(c.transports) >= maxTransports {
		for old, t := range c.transports {
			t.CloseIdleConnections()
			delete(c.transports, old)
			break
		}
	}
	dialer := &net.Dialer{Timeout: 2 * time.Second, LocalAddr: sourceOf("tcp", c.client.Source)}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			if c.dial != nil {
				return c.dial(ctx, network, addr)
			}
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:     c.tls.Clone(),
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	c.transports[addr] = t
	return t
}

func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}
