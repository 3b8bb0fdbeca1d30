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

// maxTransports bounds the addresses to which one client keeps connections.
const maxTransports = 64

// loadClient is one client: its resolver and its connections.
type loadClient struct {
	config   Client
	baseURLs []*url.URL
	resolver *stubResolver // nil for fixed URLs
	tls      *tls.Config
	nextBase atomic.Uint32

	mu         sync.Mutex
	transports map[string]*http.Transport
	dial       DialFunc // nil: the network
}

// errNoAddress is returned when there is no address to send to.
var errNoAddress = errors.New("the name has no address")

// chooseEndpoint returns the next endpoint; false when every address was tried. For a service, a cached answer is
// used for its TTL; after a failure the name is resolved again, for patience, until there is an address that was not
// tried.
func (c *loadClient) chooseEndpoint(ctx context.Context, tried map[string]bool, patience time.Duration) (endpoint, bool, error) {
	if c.resolver == nil {
		p := c.nextFixedEndpoint(tried)
		return p, !tried[p.addr], nil
	}
	p, untried, err := c.resolveEndpoint(ctx, c.baseURLs[0], tried, false)
	for wait := 100 * time.Millisecond; len(tried) > 0 && !untried && patience > 0; wait *= 2 {
		p, untried, err = c.resolveEndpoint(ctx, c.baseURLs[0], tried, true)
		if untried || !waitFor(ctx, min(wait, patience)) {
			break
		}
		patience -= wait
	}
	return p, untried, err
}

// waitFor waits; false when ctx ended first.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *loadClient) nextFixedEndpoint(tried map[string]bool) endpoint {
	start := int(c.nextBase.Load())
	if len(tried) == 0 { // a retry does not take another client's turn
		start = int(c.nextBase.Add(1))
	}
	for i := range c.baseURLs {
		base := c.baseURLs[(start+i)%len(c.baseURLs)]
		if p := literalEndpoint(base); !tried[p.addr] {
			return p
		}
	}
	return literalEndpoint(c.baseURLs[start%len(c.baseURLs)])
}

// literalEndpoint is the endpoint of a URL whose host is dialed as written.
func literalEndpoint(base *url.URL) endpoint {
	return endpoint{base: base, addr: net.JoinHostPort(base.Hostname(), portOf(base))}
}

// resolveEndpoint resolves a URL's host and returns its first address that was not tried; untried is false when all
// were.
func (c *loadClient) resolveEndpoint(ctx context.Context, base *url.URL, tried map[string]bool, again bool) (p endpoint, untried bool, err error) {
	host := base.Hostname()
	if _, err := netip.ParseAddr(host); err == nil || c.resolver == nil {
		p := literalEndpoint(base)
		return p, !tried[p.addr], nil
	}
	addrs, err := c.resolver.lookupAddrs(ctx, host, again)
	if err != nil {
		return endpoint{}, false, err
	}
	for _, a := range addrs {
		p := endpoint{base: base, addr: net.JoinHostPort(a.Unmap().String(), portOf(base))}
		if !tried[p.addr] {
			return p, true, nil
		}
	}
	if len(addrs) == 0 {
		return endpoint{}, false, errNoAddress
	}
	return endpoint{base: base, addr: net.JoinHostPort(addrs[0].Unmap().String(), portOf(base))}, false, nil
}

// transportTo returns the transport of one address. Transports are kept by address and not by name, so that a new DNS
// answer takes effect with the next request.
func (c *loadClient) transportTo(addr string) *http.Transport {
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
	dialer := &net.Dialer{Timeout: 2 * time.Second, LocalAddr: localAddrFor("tcp", c.config.Source)}
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

func (c *loadClient) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}
