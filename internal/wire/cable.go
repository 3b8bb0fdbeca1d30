package wire

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// cable is a connection to an upstream whose descriptor is lent to a loop for the time of an answer. One goroutine uses it,
// or the loop; Close may come from anywhere.
type cable struct {
	local, remote net.Addr

	mu     sync.Mutex
	conn   net.Conn // nil while it is lent
	seat   *seat    // nil while it is not
	closed bool
}

// Lendable makes a connection one whose answers can be followed (Follow), where that is possible. It belongs below TLS.
func Lendable(c net.Conn) net.Conn {
	if _, ok := c.(*net.TCPConn); !ok || !canFollow {
		return c
	}
	return &cable{conn: c, local: c.LocalAddr(), remote: c.RemoteAddr()}
}

// cableOf is the cable of a link; nil when its descriptor cannot be lent.
func cableOf(l *link) *cable {
	c := l.conn
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	at, _ := c.(*cable)
	return at
}

// Read implements net.Conn. While the cable is lent it waits for nothing.
func (l *cable) Read(p []byte) (int, error) {
	if l.seat != nil {
		return l.seat.read(p)
	}
	return l.conn.Read(p)
}

// Write implements net.Conn. While the cable is lent, that is what TLS has to say for itself.
func (l *cable) Write(p []byte) (int, error) {
	if l.seat != nil {
		return l.seat.write(p)
	}
	return l.conn.Write(p)
}

// Close implements net.Conn.
func (l *cable) Close() error {
	l.mu.Lock()
	first, seat, conn := !l.closed, l.seat, l.conn
	l.closed = true
	l.mu.Unlock()
	switch {
	case !first:
		return net.ErrClosed
	case seat != nil:
		seat.loop.post(seat)
		return nil
	}
	return conn.Close()
}

// LocalAddr implements net.Conn.
func (l *cable) LocalAddr() net.Addr { return l.local }

// RemoteAddr implements net.Conn.
func (l *cable) RemoteAddr() net.Addr { return l.remote }

// own is the connection, unless it is lent.
func (l *cable) own() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	return l.conn, nil
}

// SetDeadline implements net.Conn, as do those after it.
func (l *cable) SetDeadline(t time.Time) error {
	c, err := l.own()
	if err == nil {
		err = c.SetDeadline(t)
	}
	return err
}

// SetReadDeadline implements net.Conn.
func (l *cable) SetReadDeadline(t time.Time) error {
	c, err := l.own()
	if err == nil {
		err = c.SetReadDeadline(t)
	}
	return err
}

// SetWriteDeadline implements net.Conn.
func (l *cable) SetWriteDeadline(t time.Time) error {
	c, err := l.own()
	if err == nil {
		err = c.SetWriteDeadline(t)
	}
	return err
}

// SyscallConn implements syscall.Conn.
func (l *cable) SyscallConn() (syscall.RawConn, error) {
	c, err := l.own()
	if err != nil {
		return nil, err
	}
	return c.(syscall.Conn).SyscallConn()
}

// returned is a connection that a loop has given back.
type returned struct {
	*os.File
	local, remote net.Addr
}

// LocalAddr implements net.Conn.
func (r *returned) LocalAddr() net.Addr { return r.local }

// RemoteAddr implements net.Conn.
func (r *returned) RemoteAddr() net.Addr { return r.remote }
