//go:build unix

package http1

import (
	"net"
	"syscall"
)

// rawConnOf returns the raw connection of c, or nil if it has none.
func rawConnOf(c net.Conn) syscall.RawConn {
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

// readNow reads what is available. It returns false if nothing is.
func (l *readBufConn) readNow(fd uintptr) bool {
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

// idleProbe checks a connection without reading from it.
type idleProbe struct {
	rawConn    syscall.RawConn // nil if there is no descriptor to check
	probe      func(fd uintptr) bool
	sawNothing *bool
}

func newIdleProbe(c net.Conn) idleProbe {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	quiet := new(bool)
	return idleProbe{rawConn: rawConnOf(c), sawNothing: quiet, probe: func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		*quiet = err == syscall.EAGAIN
		return true
	}}
}

// isSilent reports whether an idle connection has received nothing: no end and no unrequested byte.
func (p *idleProbe) isSilent() bool {
	if p.rawConn == nil {
		return false
	}
	*p.sawNothing = false
	return p.rawConn.Read(p.probe) == nil && *p.sawNothing
}
