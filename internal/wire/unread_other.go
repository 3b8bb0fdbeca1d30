//go:build !linux

package wire

import "net"

// unread cannot be told here: a request that was lost with its connection is sent again.
func (p *peek) unread() bool { return true }

// Ended cannot be told here.
func Ended(net.Conn) bool { return false }
