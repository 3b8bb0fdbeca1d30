package http1

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// lendableConn is a connection to an upstream whose descriptor is lent to a stream loop for the duration of a
// response. Only one goroutine or the loop uses it at a time; Close may be called from any goroutine.
type lendableConn struct {
	localAddr, remoteAddr net.Addr

	mu     sync.Mutex
	conn   net.Conn        // nil while lent
	stream *detachedStream // nil while not lent
	closed bool
}

// MakeLendable wraps a connection so that its responses can be detached (DetachStream), where the platform
// supports that. The wrapper belongs below TLS.
func MakeLendable(c net.Conn) net.Conn {
	if _, ok := c.(*net.TCPConn); !ok || !canDetach {
		return c
	}
	return &lendableConn{conn: c, localAddr: c.LocalAddr(), remoteAddr: c.RemoteAddr()}
}

// lendableConnOf returns the lendable connection at the bottom of l, or nil if its descriptor cannot be lent.
func lendableConnOf(l *readBufConn) *lendableConn {
	c := l.conn
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	at, _ := c.(*lendableConn)
	return at
}

// Read implements net.Conn. It does not block while the connection is lent.
func (l *lendableConn) Read(p []byte) (int, error) {
	if l.stream != nil {
		return l.stream.readLent(p)
	}
	return l.conn.Read(p)
}

// Write implements net.Conn. While the connection is lent, only TLS itself writes (alerts, key updates).
func (l *lendableConn) Write(p []byte) (int, error) {
	if l.stream != nil {
		return l.stream.writeLent(p)
	}
	return l.conn.Write(p)
}

// Close implements net.Conn.
func (l *lendableConn) Close() error {
	l.mu.Lock()
	first, seat, conn := !l.closed, l.stream, l.conn
	l.closed = true
	l.mu.Unlock()
	switch {
	case !first:
		return net.ErrClosed
	case seat != nil:
		seat.loop.postStream(seat)
		return nil
	}
	return conn.Close()
}

// LocalAddr implements net.Conn.
func (l *lendableConn) LocalAddr() net.Addr { return l.localAddr }

// RemoteAddr implements net.Conn.
func (l *lendableConn) RemoteAddr() net.Addr { return l.remoteAddr }

// connUnlessLent returns the connection, unless it is lent.
func (l *lendableConn) connUnlessLent() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	return l.conn, nil
}

// SetDeadline implements net.Conn.
func (l *lendableConn) SetDeadline(t time.Time) error {
	c, err := l.connUnlessLent()
	if err == nil {
		err = c.SetDeadline(t)
	}
	return err
}

// SetReadDeadline implements net.Conn.
func (l *lendableConn) SetReadDeadline(t time.Time) error {
	c, err := l.connUnlessLent()
	if err == nil {
		err = c.SetReadDeadline(t)
	}
	return err
}

// SetWriteDeadline implements net.Conn.
func (l *lendableConn) SetWriteDeadline(t time.Time) error {
	c, err := l.connUnlessLent()
	if err == nil {
		err = c.SetWriteDeadline(t)
	}
	return err
}

// SyscallConn implements syscall.Conn.
func (l *lendableConn) SyscallConn() (syscall.RawConn, error) {
	c, err := l.connUnlessLent()
	if err != nil {
		return nil, err
	}
	return c.(syscall.Conn).SyscallConn()
}

// reclaimedConn is a connection that a loop has given back.
type reclaimedConn struct {
	*os.File
	localAddr, remoteAddr net.Addr
}

// LocalAddr implements net.Conn.
func (r *reclaimedConn) LocalAddr() net.Addr { return r.localAddr }

// RemoteAddr implements net.Conn.
func (r *reclaimedConn) RemoteAddr() net.Addr { return r.remoteAddr }
