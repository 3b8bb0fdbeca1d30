package clientip

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// ProxyListener accepts connections from proxies and from clients. A connection from any peer other than a
// trusted proxy is passed on unchanged.
type ProxyListener struct {
	net.Listener
	// Trusted lists the proxies.
	Trusted TrustedProxies
	// RequireHeader requires a PROXY header on each connection from a proxy. A connection without one is
	// closed: its clients would otherwise get the rights of the proxy.
	RequireHeader bool
	// HeaderTimeout bounds the wait for that header.
	HeaderTimeout time.Duration
	// OnRefused is called with the reason when a connection of a proxy is closed: missing, malformed, timeout
	// or closed. It must not be nil.
	OnRefused func(reason string)
}

// Accept implements net.Listener. It does not wait for the header: the first RemoteAddr or Read of the
// connection does.
func (l *ProxyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || !l.Trusted.ContainsAddr(AddrOf(c.RemoteAddr())) {
		return c, err
	}
	p := &ProxyConn{Conn: c, listener: l}
	if !l.RequireHeader {
		p.headerOnce.Do(func() {})
	}
	return p, nil
}

// AddrOf returns the IP address of a net.Addr, or an invalid address if it has none.
func AddrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	case nil:
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// ProxyConn is a connection from a proxy. Its round-trip time is that of the proxy and not of the client.
type ProxyConn struct {
	net.Conn
	listener    *ProxyListener
	headerOnce  sync.Once
	clientAddr  net.Addr // nil: the proxy itself
	afterHeader []byte   // bytes after the header
	err         error
}

// NetConn returns the underlying connection.
func (c *ProxyConn) NetConn() net.Conn { return c.Conn }

// RemoteAddr returns the address that connected to the proxy, or that of the proxy for its own connections. It
// waits for the header.
func (c *ProxyConn) RemoteAddr() net.Addr {
	c.headerOnce.Do(c.readHeader)
	if c.clientAddr != nil {
		return c.clientAddr
	}
	return c.Conn.RemoteAddr()
}

// Read implements net.Conn.
func (c *ProxyConn) Read(p []byte) (int, error) {
	c.headerOnce.Do(c.readHeader)
	if c.err != nil {
		return 0, c.err
	}
	if len(c.afterHeader) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.afterHeader)
	if c.afterHeader = c.afterHeader[n:]; len(c.afterHeader) == 0 {
		c.afterHeader = nil
	}
	return n, nil
}

// CloseWrite closes the write side, if the connection supports it.
func (c *ProxyConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// readHeader reads the header. No deadline is set before: servers call RemoteAddr first.
func (c *ProxyConn) readHeader() {
	if c.err = c.Conn.SetReadDeadline(time.Now().Add(c.listener.HeaderTimeout)); c.err != nil {
		return
	}
	buf := make([]byte, 0, 256)
	for {
		src, n, err := ParseProxyHeader(buf)
		if err == nil {
			if src.IsValid() {
				c.clientAddr = net.TCPAddrFromAddrPort(src)
			}
			c.afterHeader = buf[n:]
			c.err = c.Conn.SetReadDeadline(time.Time{})
			return
		}
		if !errors.Is(err, ErrIncomplete) {
			c.refuseConn(err, refusalReason(err))
			return
		}
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, maxV2Bytes+maxV1Bytes), buf...)
		}
		n, err = c.Conn.Read(buf[len(buf):cap(buf)])
		if buf = buf[:len(buf)+n]; n == 0 && err != nil {
			c.refuseConn(err, refusalReason(err))
			return
		}
	}
}

func (c *ProxyConn) refuseConn(err error, why string) {
	c.err = err
	c.listener.OnRefused(why)
	_ = c.Conn.Close() // the server closes it again
}

func refusalReason(err error) string {
	switch {
	case errors.Is(err, ErrMissing):
		return "missing"
	case errors.Is(err, ErrMalformed):
		return "malformed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return "closed"
}
