package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

const (
	// minHedgeDelay and maxHedgeDelay bound how long a dial may take before a second endpoint is dialled in
	// parallel. Before any dial was measured, maxHedgeDelay applies.
	minHedgeDelay = 20 * time.Millisecond
	maxHedgeDelay = 500 * time.Millisecond
	// parkTimeout is how long the loser of a race waits for a request, and maxParkedPerEndpoint how many do per
	// endpoint. It is less than the 5 s for which the listener of a zone waits for a first request.
	parkTimeout          = 4 * time.Second
	maxParkedPerEndpoint = 4
)

// ConnectedElsewhere is the error of a dial that lost the race: the connection to another endpoint was
// established first and waits for its request. Nothing was sent to either.
type ConnectedElsewhere struct {
	// Addr is the other endpoint.
	Addr string
}

// Error implements error.
func (e *ConnectedElsewhere) Error() string {
	return "the connection to " + e.Addr + " was established first"
}

// Connector dials the connections of a transport, including TLS. If a request has an alternative endpoint
// (WithAlternative), and the dial to the first exceeds a short time learned from earlier dials, the alternative
// is dialled in parallel. The first established connection wins; no request is sent before that.
type Connector struct {
	// Dial establishes one connection, ready for a request.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// MaxHedgeDelay is the upper bound of the learned delay. 0 means 500 ms; negative disables the second dial.
	MaxHedgeDelay time.Duration
	// OnHedge, if set, is called after each second dial, with whether it won.
	OnHedge func(won bool)

	mu                     sync.Mutex
	meanSeconds, deviation float64 // of dial durations, in seconds
	parked                 map[string][]*parkedConn
	closed                 bool
}

// parkedConn waits for a request.
type parkedConn struct {
	net.Conn
	expiry *time.Timer
}

// NewTLSDialer returns a Dial for a Connector: TCP by dial, then TLS with the host name of the address.
func NewTLSDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error), cfg *tls.Config, within time.Duration) func(context.Context, string, string) (net.Conn, error) {
	named := http1.NewHostTLSConfigs(cfg)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = "" // as the dialer has accepted it
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		conn := tls.Client(http1.MakeLendable(raw), named.ConfigFor(host))
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // unusable
			return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		return conn, nil
	}
}

type alternativeKey struct{}

// WithAlternative returns a context for a request with an alternative endpoint. f is called at most once.
func WithAlternative(ctx context.Context, f func() (addr string, ok bool)) context.Context {
	return context.WithValue(ctx, alternativeKey{}, alternativeFunc(f))
}

// StartWithAlternative starts c under ctx with the value that WithAlternative sets.
func StartWithAlternative(ctx context.Context, c *reqctx.Context, a AlternativeProvider) {
	c.StartWithValue(ctx, alternativeKey{}, a)
}

// AlternativeProvider names an alternative endpoint for a request. It is called at most once, possibly after
// the request has ended.
type AlternativeProvider interface {
	AlternativeAddr() (addr string, ok bool)
}

type alternativeFunc func() (addr string, ok bool)

// AlternativeAddr implements AlternativeProvider.
func (f alternativeFunc) AlternativeAddr() (addr string, ok bool) { return f() }

// dialResult is the result of a dial.
type dialResult struct {
	addr string
	conn net.Conn
	err  error
}

// DialContext connects to addr, or returns a *ConnectedElsewhere if the alternative was first. It has the
// signature of http.Transport.DialTLSContext.
func (c *Connector) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if conn := c.takeParked(addr); conn != nil {
		return conn, nil
	}
	var alternative func() (string, bool)
	if a, ok := ctx.Value(alternativeKey{}).(AlternativeProvider); ok {
		alternative = a.AlternativeAddr
	}
	if alternative == nil || c.MaxHedgeDelay < 0 {
		d := <-c.startDial(ctx, network, addr)
		return d.conn, d.err
	}
	first := c.startDial(ctx, network, addr)
	late := time.NewTimer(c.hedgeDelay())
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
	return c.raceDials(first, c.startDial(ctx, network, other))
}

// raceDials returns the first connection, or a *ConnectedElsewhere if the second was established before it.
func (c *Connector) raceDials(first, second <-chan dialResult) (net.Conn, error) {
	var failed error
	for {
		select {
		case d := <-first:
			if d.err == nil {
				c.reportHedge(false)
				if second != nil {
					go c.parkConn(second)
				}
				return d.conn, nil
			}
			failed, first = d.err, nil
		case d := <-second:
			if d.err == nil {
				c.reportHedge(true)
				done := make(chan dialResult, 1)
				done <- d
				c.parkConn(done)
				if first != nil {
					go c.parkConn(first)
				}
				return nil, &ConnectedElsewhere{Addr: d.addr}
			}
			second = nil
		}
		if first == nil && second == nil {
			return nil, failed
		}
	}
}

func (c *Connector) reportHedge(won bool) {
	if c.OnHedge != nil {
		c.OnHedge(won)
	}
}

// startDial dials and records the duration.
func (c *Connector) startDial(ctx context.Context, network, addr string) <-chan dialResult {
	done := make(chan dialResult, 1)
	began := time.Now()
	go func() {
		conn, err := c.Dial(ctx, network, addr)
		if err == nil {
			c.learnDialTime(time.Since(began).Seconds())
		}
		done <- dialResult{addr, conn, err}
	}()
	return done
}

func (c *Connector) learnDialTime(seconds float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meanSeconds == 0 {
		c.meanSeconds, c.deviation = seconds, seconds/2
		return
	}
	off := seconds - c.meanSeconds
	c.meanSeconds += off / 8
	c.deviation += (max(off, -off) - c.deviation) / 4
}

// hedgeDelay returns how long a dial may take before an alternative is dialled: clearly longer than usual
// dials.
func (c *Connector) hedgeDelay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.MaxHedgeDelay
	if most <= 0 {
		most = maxHedgeDelay
	}
	if c.meanSeconds == 0 {
		return most
	}
	return min(max(time.Duration((c.meanSeconds+4*c.deviation)*float64(time.Second)), minHedgeDelay), most)
}

// parkConn keeps a connection that lost a race, or was meant for another request, for parkTimeout.
func (c *Connector) parkConn(done <-chan dialResult) {
	d := <-done
	if d.err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.parked[d.addr]) >= maxParkedPerEndpoint {
		_ = d.conn.Close() // unused
		return
	}
	if c.parked == nil {
		c.parked = map[string][]*parkedConn{}
	}
	p := &parkedConn{Conn: d.conn}
	p.expiry = time.AfterFunc(parkTimeout, func() { c.expireParked(d.addr, p) })
	c.parked[d.addr] = append(c.parked[d.addr], p)
}

func (c *Connector) expireParked(addr string, p *parkedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.parked[addr] {
		if p == q {
			_ = p.Close() // unused
			c.setParked(addr, append(c.parked[addr][:i:i], c.parked[addr][i+1:]...))
			return
		}
	}
}

func (c *Connector) setParked(addr string, list []*parkedConn) {
	if len(list) == 0 {
		delete(c.parked, addr)
		return
	}
	c.parked[addr] = list
}

// takeParked takes a parked connection, or returns nil.
func (c *Connector) takeParked(addr string) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.parked[addr]
	for len(list) > 0 {
		p := list[len(list)-1]
		list = list[:len(list)-1]
		c.setParked(addr, list)
		if !p.expiry.Stop() {
			continue
		}
		if !http1.IsConnClosed(p.Conn) {
			return p.Conn
		}
		_ = p.Close() // closed by the other side
	}
	return nil
}

// Close closes parked connections. Connections in use belong to their users.
func (c *Connector) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, list := range c.parked {
		for _, p := range list {
			if p.expiry.Stop() {
				_ = p.Close() // unused
			}
		}
	}
	c.parked = nil
}
