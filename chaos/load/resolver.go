package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultTTL is used for an answer whose TTL could not be read, as over TCP.
	defaultTTL = time.Second
	// dialReserve lets the connection's own deadline expire before the context's, so that a silent server is counted
	// before the next one is tried.
	dialReserve = 100 * time.Millisecond
	// maxCachedNames bounds the cache.
	maxCachedNames = 256
)

// stubResolver is a client's stub resolver: it queries given servers in turn, goes to the next one when one fails,
// and caches answers for their TTL.
type stubResolver struct {
	servers    []string
	local      netip.Addr // source address; invalid means any
	timeout    time.Duration
	counts     *dnsCounts
	nextServer atomic.Uint32

	mu    sync.Mutex
	cache map[string]cachedAnswer
}

type cachedAnswer struct {
	addrs []netip.Addr
	until time.Time
}

// dnsCounts are totals over all clients.
type dnsCounts struct {
	queries, failedQueries, lookups, failedLookups, cached atomic.Uint64
}

func newResolver(servers []string, local netip.Addr, timeout time.Duration, counts *dnsCounts) *stubResolver {
	return &stubResolver{servers: servers, local: local, timeout: timeout, counts: counts, cache: map[string]cachedAnswer{}}
}

// lookupAddrs returns the addresses of a name. fresh bypasses the cache.
func (r *stubResolver) lookupAddrs(ctx context.Context, name string, fresh bool) ([]netip.Addr, error) {
	name = strings.TrimSuffix(name, ".") + "."
	if !fresh {
		if addrs := r.cachedAddrs(name, time.Now()); addrs != nil {
			r.counts.cached.Add(1)
			return addrs, nil
		}
	}
	r.counts.lookups.Add(1)
	var problems []error
	start := int(r.nextServer.Add(1))
	for i := range r.servers {
		server := r.servers[(start+i)%len(r.servers)]
		addrs, ttl, err := r.queryServer(ctx, server, name)
		if err == nil {
			r.cacheAnswer(name, cachedAnswer{addrs: addrs, until: time.Now().Add(ttl)})
			return addrs, nil
		}
		problems = append(problems, err)
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound || ctx.Err() != nil {
			break // the name does not exist, or the caller has given up
		}
	}
	r.counts.failedLookups.Add(1)
	return nil, fmt.Errorf("resolving %s: %w", name, errors.Join(problems...))
}

func (r *stubResolver) cachedAddrs(name string, now time.Time) []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.cache[name]; ok && now.Before(a.until) {
		return a.addrs
	}
	return nil
}

func (r *stubResolver) cacheAnswer(name string, a cachedAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= maxCachedNames {
		clear(r.cache)
	}
	r.cache[name] = a
}

// queryServer queries one server.
func (r *stubResolver) queryServer(ctx context.Context, server, name string) ([]netip.Addr, time.Duration, error) {
	w := &resolutionWatch{counts: r.counts, deadline: time.Now().Add(r.timeout)}
	ctx, cancel := context.WithDeadline(ctx, w.deadline.Add(dialReserve))
	defer cancel()
	stub := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return w.dialServer(ctx, network, server, r.local)
		},
	}
	addrs, err := stub.LookupNetIP(ctx, r.ipNetwork(), name)
	if err != nil {
		return nil, 0, fmt.Errorf("asking %s: %w", server, err)
	}
	return addrs, w.answerTTL(), nil
}

// ipNetwork is the address family that this client can use.
func (r *stubResolver) ipNetwork() string {
	switch {
	case !r.local.IsValid():
		return "ip"
	case r.local.Is4():
		return "ip4"
	}
	return "ip6"
}
