//go:build !unix

package http1

import (
	"net"
	"syscall"
)

func rawConnOf(net.Conn) syscall.RawConn { return nil }

func (l *readBufConn) readNow(uintptr) bool { return true }

// idleProbe is not available on this platform, so no connection is reused.
type idleProbe struct{}

func newIdleProbe(net.Conn) idleProbe { return idleProbe{} }

func (p *idleProbe) isSilent() bool { return false }
