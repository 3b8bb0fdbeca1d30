//go:build unix

package wire

import (
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

// peek looks at a connection without reading of it.
type peek struct {
	raw   syscall.RawConn // nil when there is none to look at
	try   func(fd uintptr) bool
	quiet *bool
}

func newPeek(c net.Conn) peek {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	quiet := new(bool)
	return peek{raw: rawOf(c), quiet: quiet, try: func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		*quiet = err == syscall.EAGAIN
		return true
	}}
}

// silent says that nothing has come on a connection that waits to be used again: no end, and no byte that nobody has asked
// for.
func (p *peek) silent() bool {
	if p.raw == nil {
		return false
	}
	*p.quiet = false
	return p.raw.Read(p.try) == nil && *p.quiet
}
