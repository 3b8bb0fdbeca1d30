//go:build unix

package wire

import (
	"errors"
	"net"
	"syscall"
)

// rawOf is a connection's descriptor; nil when it has none.
func rawOf(c net.Conn) syscall.RawConn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// attempt reads what is there; false when nothing is.
func (l *link) attempt(fd uintptr) bool {
	if l.buf == nil {
		l.buf = getBuffer(false)
	}
	for {
		l.n, l.err = syscall.Read(int(fd), *l.buf)
		switch l.err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			putBuffer(l.buf)
			l.buf, l.n, l.err = nil, 0, nil
			return false
		}
		return true
	}
}

// silent says that nothing has come on a connection that waits to be used again: no end, and no byte that nobody has asked
// for.
func silent(c net.Conn) bool {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	raw := rawOf(c)
	if raw == nil {
		return false
	}
	quiet := false
	err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
