package regional

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/origin"
)

const (
	// meterQueue is how many samples may wait for their counting; more are dropped, since nobody waits for it.
	meterQueue = 1024
	// sampleAgain is the time between two samples of one connection, for those that stay open for hours.
	sampleAgain = time.Minute
	// reportEvery is the time between two reports of round trips, in statements: paths change slowly, and a report
	// that has changed takes room in each statement until the next snapshot.
	reportEvery = 40
)

// sample is one connection's round trip.
type sample struct {
	client netip.Addr
	rtt    time.Duration
}

// meter learns how far clients are from what the kernel knows of their connections. Whoever serves a request asks the
// kernel, which takes about a microsecond, when the connection falls idle and when it closes, and never waits: one
// goroutine counts.
type meter struct {
	atlas   *geo.Live
	proxies origin.Trusted // whose round trips are not their clients'
	keep    time.Duration
	samples chan sample
	count   func(outcome string)
	report  atomic.Pointer[[]capacity.RTT]
	known   atomic.Int64 // networks
}

// newMeter is nil when there is nothing to learn: no atlas, or keep is negative.
func newMeter(atlas *geo.Live, keep time.Duration, count func(outcome string)) *meter {
	if atlas == nil || keep < 0 {
		return nil
	}
	if keep == 0 {
		keep = geo.MeasuredFor
	}
	return &meter{atlas: atlas, keep: keep, samples: make(chan sample, meterQueue), count: count}
}

// attach measures the connections of a door that does not serve yet.
func (m *meter) attach(d *door) {
	if m == nil {
		return
	}
	d.listener = &meteredListener{d.listener, m}
	if d.open != nil {
		d.open.meter.Store(m)
	}
	track := d.http.ConnState
	d.http.ConnState = func(c net.Conn, s http.ConnState) {
		track(c, s)
		if s == http.StateIdle {
			m.idle(c)
		}
	}
}

// idle samples a connection that has answered a request, but not often.
func (m *meter) idle(c net.Conn) {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = t.NetConn()
	}
	if mc, ok := c.(*meteredConn); ok {
		mc.sampleOnceIn(sampleAgain)
	}
}

// reported is what was learned, as the last report has it. The slice is shared: do not modify it.
func (m *meter) reported() []capacity.RTT {
	if m == nil {
		return nil
	}
	if r := m.report.Load(); r != nil {
		return *r
	}
	return nil
}

// networks is how many networks were known at the last report.
func (m *meter) networks() float64 {
	if m == nil {
		return 0
	}
	return float64(m.known.Load())
}

// run counts samples until ctx ends.
func (m *meter) run(ctx context.Context, every time.Duration) {
	table := newRTTs(m.keep)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-m.samples:
			m.take(table, s)
		case <-tick.C:
			r := table.report(time.Now())
			m.report.Store(&r)
			m.known.Store(int64(len(table.networks)))
		}
	}
}

func (m *meter) take(table *rtts, s sample) {
	cell, _ := m.atlas.Atlas().Spot(s.client)
	switch {
	case cell == geo.NoCell: // nowhere, such as a balancer with a private address that stands before clients
		m.count("unplaced")
	case s.rtt <= 0 || s.rtt > geo.MaxRTT:
		m.count("implausible")
	default:
		table.add(s.client, cell, s.rtt, time.Now())
		m.count("taken")
	}
}

// heard is a round trip that somebody else measured, such as QUIC.
func (m *meter) heard(from net.Addr, rtt time.Duration) {
	if udp, ok := from.(*net.UDPAddr); ok {
		m.sampled(udp.AddrPort().Addr().Unmap(), rtt)
	}
}

// sampled takes a connection's round trip. What a trusted proxy's connections show is how far the proxy is: the client
// behind it may be anywhere.
func (m *meter) sampled(from netip.Addr, rtt time.Duration) {
	if m.proxies.Has(from) {
		m.count("proxied")
		return
	}
	m.offer(sample{client: from, rtt: rtt})
}

// offer hands a sample over, or drops it when too many wait.
func (m *meter) offer(s sample) {
	select {
	case m.samples <- s:
	default:
		m.count("dropped")
	}
}

// meteredListener makes connections that tell their meter how far their client is.
type meteredListener struct {
	net.Listener
	meter *meter
}

// Accept implements net.Listener.
func (l *meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &meteredConn{TCPConn: tcp, meter: l.meter}, nil
	}
	return c, err
}

// meteredConn samples its round trip now and then and when it closes.
type meteredConn struct {
	*net.TCPConn
	meter *meter
	last  atomic.Int64 // when it was sampled last, in Unix nanoseconds; -1 once closed
}

// Direct is the connection that the bytes are those of.
func (c *meteredConn) Direct() *net.TCPConn { return c.TCPConn }

// Close implements net.Conn.
func (c *meteredConn) Close() error {
	if c.last.Swap(-1) >= 0 {
		c.sample()
	}
	return c.TCPConn.Close()
}

// sampleOnceIn samples unless that was done less than a time ago.
func (c *meteredConn) sampleOnceIn(d time.Duration) {
	last, now := c.last.Load(), time.Now().UnixNano()
	if last >= 0 && now-last >= int64(d) && c.last.CompareAndSwap(last, now) {
		c.sample()
	}
}

func (c *meteredConn) sample() {
	rtt, ok := tcpRTT(c.TCPConn)
	from, placed := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !placed {
		return
	}
	c.meter.sampled(from.AddrPort().Addr().Unmap(), rtt)
}
