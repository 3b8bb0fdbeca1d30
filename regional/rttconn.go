package regional

import (
	"net"
	"sync/atomic"
	"time"
)

// rttListener wraps connections so that they report their round-trip time to the sampler.
type rttListener struct {
	net.Listener
	sampler *rttSampler
}

// Accept implements net.Listener.
func (l *rttListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &rttConn{TCPConn: tcp, sampler: l.sampler}, nil
	}
	return c, err
}

// rttConn samples its round-trip time from time to time and when it closes.
type rttConn struct {
	*net.TCPConn
	sampler     *rttSampler
	lastSampled atomic.Int64 // time of the last sample, in Unix nanoseconds; -1 once closed
}

// UnderlyingTCPConn returns the wrapped connection.
func (c *rttConn) UnderlyingTCPConn() *net.TCPConn { return c.TCPConn }

// Close implements net.Conn.
func (c *rttConn) Close() error {
	if c.lastSampled.Swap(-1) >= 0 {
		c.sampleRTT()
	}
	return c.TCPConn.Close()
}

// sampleIfOlder takes a sample unless the last one is younger than d.
func (c *rttConn) sampleIfOlder(d time.Duration) {
	last, now := c.lastSampled.Load(), time.Now().UnixNano()
	if last >= 0 && now-last >= int64(d) && c.lastSampled.CompareAndSwap(last, now) {
		c.sampleRTT()
	}
}

func (c *rttConn) sampleRTT() {
	rtt, ok := tcpRTT(c.TCPConn)
	from, placed := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !placed {
		return
	}
	c.sampler.recordSample(from.AddrPort().Addr().Unmap(), rtt)
}
