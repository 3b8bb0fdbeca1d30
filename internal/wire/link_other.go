//go:build !unix

package wire

import (
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

func (l *link) attempt(uintptr) bool { return true }

// peek cannot look here, so that no connection is used twice.
type peek struct{}

func newPeek(net.Conn) peek { return peek{} }

func (p *peek) silent() bool { return false }
