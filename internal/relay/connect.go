package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
	"github.com/spillway-lb/spillway/internal/wire"
)

const (
	// leastHedge and mostHedge bound how long a connection may take before another place is tried beside it. Before
	// anything was learned it may take the longest.
	leastHedge = 20 * time.Millisecond
	mostHedge  = 500 * time.Millisecond
	// parkedFor is how long a connection that came second waits for a request, and maxParked how many do for one place. It is
	// less than the 5 s for which a zone's listener waits for a first request.
	parkedFor = 4 * time.Second
	maxParked = 4
)

// Elsewhere is why no connection was made to a place: another one's was there first, and waits for its request. Nothing
// was sent to either.
type Elsewhere struct {
	// Addr is the other place.
	Addr string
}

// Error says so.
func (e *Elsewhere) Error() string { return "the connection to " + e.Addr + " was there first" }

// Connector makes a transport's connections, TLS included. Where a request names another place that would do as well
// (WithAlternative), and the connection to the first is not there within a short time that is learned from those before
// it, the other is connected to beside it. The first connection to be there wins; no request is sent before.
type Connector struct {
	// Dial makes one connection, ready for a request.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Most bounds the learned time from above. Zero means 500 ms; negative: no second connection is made.
	Most time.Duration
	// Hedged, where it is set, hears of each second connection, and whether it was first.
	Hedged func(won bool)

	mu        sync.Mutex
	mean, dev float64 // of the seconds that connections have taken
	parked    map[string][]*parkedConn
	closed    bool
}

// parkedConn waits for a request.
type parkedConn struct {
	net.Conn
	expiry *time.Timer
}

// DialTLS is a Dial for a Connector: TCP by dial, and TLS for the host that is dialled.
func DialTLS(dial func(ctx context.Context, network, addr string) (net.Conn, error), cfg *tls.Config, within time.Duration) func(context.Context, string, string) (net.Conn, error) {
	named := wire.Named(cfg)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = "" // as the dialler has taken it
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		conn := tls.Client(wire.Lendable(raw), named.Of(host))
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // it is of no use
			return nil, fmt.Errorf("greeting %s: %w", addr, err)
		}
		return conn, nil
	}
}

type alternativeKey struct{}

// WithAlternative names another place for a request, in the context that it is sent with. f is asked once at most.
func WithAlternative(ctx context.Context, f func() (addr string, ok bool)) context.Context {
	return context.WithValue(ctx, alternativeKey{}, alternative(f))
}

// BeginWithAlternative begins c under ctx with what WithAlternative gives one.
func BeginWithAlternative(ctx context.Context, c *lifetime.Context, a Alternative) {
	c.BeginWith(ctx, alternativeKey{}, a)
}

// Alternative names another place for a request, at most once, and perhaps after the request has ended.
type Alternative interface {
	Alternative() (addr string, ok bool)
}

type alternative func() (addr string, ok bool)

// Alternative implements Alternative.
func (f alternative) Alternative() (addr string, ok bool) { return f() }

// dialled is a connection that was asked for.
type dialled struct {
	addr string
	conn net.Conn
	err  error
}

// DialContext makes a connection to addr, or says in an *Elsewhere that another place's is there. It has the form of
// http.Transport.DialTLSContext.
func (c *Connector) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if conn := c.unpark(addr); conn != nil {
		return conn, nil
	}
	var alternative func() (string, bool)
	if a, ok := ctx.Value(alternativeKey{}).(Alternative); ok {
		alternative = a.Alternative
	}
	if alternative == nil || c.Most < 0 {
		d := <-c.begin(ctx, network, addr)
		return d.conn, d.err
	}
	first := c.begin(ctx, network, addr)
	late := time.NewTimer(c.delay())
	defer late.Stop()
	select {
	case d := <-first:
		return d.conn, d.err
	case <-late.C:
	}
	other, ok := alternative()
	if !ok {
		d := <-first
		return d.conn, d.err
	}
	return c.race(first, c.begin(ctx, network, other))
}

// race returns the first connection, or says that the second was there before it.
func (c *Connector) race(first, second <-chan dialled) (net.Conn, error) {
	var failed error
	for {
		select {
		case d := <-first:
			if d.err == nil {
				c.hedged(false)
				if second != nil {
					go c.park(second)
				}
				return d.conn, nil
			}
			failed, first = d.err, nil
		case d := <-second:
			if d.err == nil {
				c.hedged(true)
				done := make(chan dialled, 1)
				done <- d
				c.park(done)
				if first != nil {
					go c.park(first)
				}
				return nil, &Elsewhere{Addr: d.addr}
			}
			second = nil
		}
		if first == nil && second == nil {
			return nil, failed
		}
	}
}

func (c *Connector) hedged(won bool) {
	if c.Hedged != nil {
		c.Hedged(won)
	}
}

// begin connects, and learns how long that takes.
func (c *Connector) begin(ctx context.Context, network, addr string) <-chan dialled {
	done := make(chan dialled, 1)
	began := time.Now()
	go func() {
		conn, err := c.Dial(ctx, network, addr)
		if err == nil {
			c.learn(time.Since(began).Seconds())
		}
		done <- dialled{addr, conn, err}
	}()
	return done
}

func (c *Connector) learn(seconds float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mean == 0 {
		c.mean, c.dev = seconds, seconds/2
		return
	}
	off := seconds - c.mean
	c.mean += off / 8
	c.dev += (max(off, -off) - c.dev) / 4
}

// delay is how long a connection may take before another is tried beside it: clearly longer than they do.
func (c *Connector) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.Most
	if most <= 0 {
		most = mostHedge
	}
	if c.mean == 0 {
		return most
	}
	return min(max(time.Duration((c.mean+4*c.dev)*float64(time.Second)), leastHedge), most)
}

// park keeps a connection that came too late, or for another request, for a while.
func (c *Connector) park(done <-chan dialled) {
	d := <-done
	if d.err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.parked[d.addr]) >= maxParked {
		_ = d.conn.Close() // nobody has used it
		return
	}
	if c.parked == nil {
		c.parked = map[string][]*parkedConn{}
	}
	p := &parkedConn{Conn: d.conn}
	p.expiry = time.AfterFunc(parkedFor, func() { c.expire(d.addr, p) })
	c.parked[d.addr] = append(c.parked[d.addr], p)
}

func (c *Connector) expire(addr string, p *parkedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.parked[addr] {
		if p == q {
			_ = p.Close() // nobody has used it
			c.keep(addr, append(c.parked[addr][:i:i], c.parked[addr][i+1:]...))
			return
		}
	}
}

func (c *Connector) keep(addr string, list []*parkedConn) {
	if len(list) == 0 {
		delete(c.parked, addr)
		return
	}
	c.parked[addr] = list
}

// unpark takes a connection that waits; nil when none does.
func (c *Connector) unpark(addr string) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.parked[addr]
	for len(list) > 0 {
		p := list[len(list)-1]
		list = list[:len(list)-1]
		c.keep(addr, list)
		if !p.expiry.Stop() {
			continue
		}
		if !wire.Ended(p.Conn) {
			return p.Conn
		}
		_ = p.Close() // the other side has done so
	}
	return nil
}

// Close closes what waits. Connections that are used are their users'.
func (c *Connector) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, list := range c.parked {
		for _, p := range list {
			if p.expiry.Stop() {
				_ = p.Close() // nobody has used it
			}
		}
	}
	c.parked = nil
}
