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
	// defaultTTL is how long an answer counts whose TTL could not be read, as over TCP.
	defaultTTL = time.Second
	// reserve lets the connection's own deadline strike before the context's, so that a silent server is counted before
	// the next one is asked.
	reserve = 100 * time.Millisecond
	// maxNames bounds the cache.
	maxNames = 256
)

// resolver is a client's stub resolver: it asks given servers in turn, passes to the next one when one fails, and keeps
// answers for as long as they say.
type resolver struct {
	servers []string
	local   netip.Addr // source address; invalid means any
	timeout time.Duration
	counts  *dnsCounts
	turn    atomic.Uint32

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

func newResolver(servers []string, local netip.Addr, timeout time.Duration, counts *dnsCounts) *resolver {
	return &resolver{servers: servers, local: local, timeout: timeout, counts: counts, cache: map[string]cachedAnswer{}}
}

// lookup returns the addresses of a name. Fresh passes the cache by.
func (r *resolver) lookup(ctx context.Context, name string, fresh bool) ([]netip.Addr, error) {
	name = strings.TrimSuffix(name, ".") + "."
	if !fresh {
		if addrs := r.kept(name, time.Now()); addrs != nil {
			r.counts.cached.Add(1)
			return addrs, nil
		}
	}
	r.counts.lookups.Add(1)
	var problems []error
	start := int(r.turn.Add(1))
	for i := range r.servers {
		server := r.servers[(start+i)%len(r.servers)]
		addrs, ttl, err := r.ask(ctx, server, name)
		if err == nil {
			r.keep(name, cachedAnswer{addrs: addrs, until: time.Now().Add(ttl)})
			return addrs, nil
		}
		problems = append(problems, err)
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound || ctx.Err() != nil {
			break // no such name, says a server; or nobody waits any more
		}
	}
	r.counts.failedLookups.Add(1)
	return nil, fmt.Errorf("resolving %s: %w", name, errors.Join(problems...))
}

func (r *resolver) kept(name string, now time.Time) []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.cache[name]; ok && now.Before(a.until) {
		return a.addrs
	}
	return nil
}

func (r *resolver) keep(name string, a cachedAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= maxNames {
		clear(r.cache)
	}
	r.cache[name] = a
}

// ask sends the question to one server.
func (r *resolver) ask(ctx context.Context, server, name string) ([]netip.Addr, time.Duration, error) {
	w := &watch{counts: r.counts, until: time.Now().Add(r.timeout)}
	ctx, cancel := context.WithDeadline(ctx, w.until.Add(reserve))
	defer cancel()
	stub := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return w.dial(ctx, network, server, r.local)
		},
	}
	addrs, err := stub.LookupNetIP(ctx, r.network(), name)
	if err != nil {
		return nil, 0, fmt.Errorf("asking %s: %w", server, err)
	}
	return addrs, w.ttl(), nil
}

// network is the family that this client can reach.
func (r *resolver) network() string {
	switch {
	case !r.local.IsValid():
		return "ip"
	case r.local.Is4():
		return "ip4"
	}
	return "ip6"
}
