//go:build !unix

package wire

import (
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

func (l *link) attempt(uintptr) bool { return true }

// silent cannot be said here, so that no connection is used twice.
func silent(net.Conn) bool { return false }
