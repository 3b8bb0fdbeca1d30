package regional

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/regional/rtt"
)

const (
	// rttSampleQueue is how many samples may wait; more are dropped, because requests never wait for the sampler.
	rttSampleQueue = 1024
	// resampleInterval is the time between two samples of one connection, for those that stay open for hours.
	resampleInterval = time.Minute
	// rttReportEvery is the number of summaries between two RTT reports. Paths change slowly, and a changed report
	// takes room in each summary until the next snapshot.
	rttReportEvery = 40
)

// rttSample is one connection's round-trip time.
type rttSample struct {
	client netip.Addr
	rtt    time.Duration
}

// rttSampler learns the round-trip times of clients from the kernel's TCP state. The goroutine that serves a
// connection reads it, which takes about a microsecond, when the connection becomes idle and when it closes. It
// never waits: a single goroutine counts the samples.
type rttSampler struct {
	atlas          *geofiles.LiveAtlas
	trustedProxies clientip.TrustedProxies // their round-trip times are not those of clients
	retention      time.Duration
	samples        chan rttSample
	count          func(outcome string)
	report         atomic.Pointer[[]capacity.CellRTT]
	networkCount   atomic.Int64 // number of networks
}

// newRTTSampler returns nil when nothing is to be measured: atlas is nil or keep is negative.
func newRTTSampler(atlas *geofiles.LiveAtlas, keep time.Duration, count func(outcome string)) *rttSampler {
	if atlas == nil || keep < 0 {
		return nil
	}
	if keep == 0 {
		keep = geo.DefaultMaxMeasurementAge
	}
	return &rttSampler{atlas: atlas, retention: keep, samples: make(chan rttSample, rttSampleQueue), count: count}
}

// attachTo measures the connections of a listener that does not serve yet.
func (m *rttSampler) attachTo(d *gatewayListener) {
	if m == nil {
		return
	}
	d.listener = &rttListener{d.listener, m}
	if d.public != nil {
		d.public.rttSampler.Store(m)
	}
	track := d.httpServer.ConnState
	d.httpServer.ConnState = func(c net.Conn, s http.ConnState) {
		track(c, s)
		if s == http.StateIdle {
			m.sampleIdle(c)
		}
	}
}

// sampleIdle samples a connection after a response, at most once per resampleInterval.
func (m *rttSampler) sampleIdle(c net.Conn) {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = t.NetConn()
	}
	if mc, ok := c.(*rttConn); ok {
		mc.sampleIfOlder(resampleInterval)
	}
}

// lastReport returns the last report. The slice is shared: do not modify it.
func (m *rttSampler) lastReport() []capacity.CellRTT {
	if m == nil {
		return nil
	}
	if r := m.report.Load(); r != nil {
		return *r
	}
	return nil
}

// countNetworks returns the number of networks at the last report.
func (m *rttSampler) countNetworks() float64 {
	if m == nil {
		return 0
	}
	return float64(m.networkCount.Load())
}

// runSampler counts samples until ctx ends.
func (m *rttSampler) runSampler(ctx context.Context, every time.Duration) {
	table := rtt.NewClientTable(m.retention)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-m.samples:
			m.countSample(table, s)
		case <-tick.C:
			r := table.ReportCells(time.Now())
			m.report.Store(&r)
			m.networkCount.Store(int64(table.Len()))
		}
	}
}

func (m *rttSampler) countSample(table *rtt.ClientTable, s rttSample) {
	cell, _ := m.atlas.Atlas().FindCell(s.client)
	switch {
	case cell == geo.NoCell: // no location, such as a load balancer with a private address in front of clients
		m.count("unplaced")
	case s.rtt <= 0 || s.rtt > geo.MaxRTT:
		m.count("implausible")
	default:
		table.AddSample(s.client, cell, s.rtt, time.Now())
		m.count("taken")
	}
}

// recordQUIC records a round-trip time that QUIC has measured.
func (m *rttSampler) recordQUIC(from net.Addr, rtt time.Duration) {
	if udp, ok := from.(*net.UDPAddr); ok {
		m.recordSample(udp.AddrPort().Addr().Unmap(), rtt)
	}
}

// recordSample records a connection's round-trip time. That of a trusted proxy's connection is left out: it
// measures the way to the proxy, and the client behind it may be anywhere.
func (m *rttSampler) recordSample(from netip.Addr, rtt time.Duration) {
	if m.trustedProxies.ContainsAddr(from) {
		m.count("proxied")
		return
	}
	m.enqueueSample(rttSample{client: from, rtt: rtt})
}

// enqueueSample queues a sample, or drops it when the queue is full.
func (m *rttSampler) enqueueSample(s rttSample) {
	select {
	case m.samples <- s:
	default:
		m.count("dropped")
	}
}
