package origin

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Listener accepts from proxies and from clients alike. A connection from anybody else than a trusted proxy is handed on
// as it came.
type Listener struct {
	net.Listener
	// Trusted are the proxies.
	Trusted Trusted
	// Headed: each connection from a proxy begins with a PROXY header. One without is ended: a proxy that does not say
	// who asks would lend everybody its own rights.
	Headed bool
	// Timeout bounds the time until that header is there.
	Timeout time.Duration
	// Refused is told why a connection of a proxy was ended: missing, malformed, timeout or closed. It must not be nil.
	Refused func(reason string)
}

// Accept implements net.Listener. It waits for no header: whoever first asks a connection for its peer, or reads, does.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || !l.Trusted.Has(AddrOf(c.RemoteAddr())) {
		return c, err
	}
	p := &Conn{Conn: c, by: l}
	if !l.Headed {
		p.once.Do(func() {})
	}
	return p, nil
}

// AddrOf is the address of a network endpoint; invalid when it has none.
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

// Conn is a connection from a proxy. How far its other end is says nothing of its client.
type Conn struct {
	net.Conn
	by   *Listener
	once sync.Once
	src  net.Addr // nil: the proxy itself
	rest []byte   // came behind the header
	err  error
}

// NetConn is the connection beneath.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// RemoteAddr is who connected to the proxy, or the proxy where it speaks for itself. It waits for the header.
func (c *Conn) RemoteAddr() net.Addr {
	c.once.Do(c.head)
	if c.src != nil {
		return c.src
	}
	return c.Conn.RemoteAddr()
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	c.once.Do(c.head)
	if c.err != nil {
		return 0, c.err
	}
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n, nil
}

// CloseWrite ends what is sent, where the connection can.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// head reads the header. Nobody has set a deadline before: whoever serves a connection asks who it is from first.
func (c *Conn) head() {
	if c.err = c.Conn.SetReadDeadline(time.Now().Add(c.by.Timeout)); c.err != nil {
		return
	}
	buf := make([]byte, 0, 256)
	for {
		src, n, err := ParseHeader(buf)
		if err == nil {
			if src.IsValid() {
				c.src = net.TCPAddrFromAddrPort(src)
			}
			c.rest = buf[n:]
			c.err = c.Conn.SetReadDeadline(time.Time{})
			return
		}
		if !errors.Is(err, ErrMore) {
			c.end(err, reason(err))
			return
		}
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, maxV2+maxV1), buf...)
		}
		n, err = c.Conn.Read(buf[len(buf):cap(buf)])
		if buf = buf[:len(buf)+n]; n == 0 && err != nil {
			c.end(err, reason(err))
			return
		}
	}
}

func (c *Conn) end(err error, why string) {
	c.err = err
	c.by.Refused(why)
	_ = c.Conn.Close() // whoever serves it closes it again
}

func reason(err error) string {
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
