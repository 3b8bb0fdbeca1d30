//go:build !linux

package http1

import "net"

// peerClosedUnread cannot be determined on this platform: a request that was lost with its connection is
// resent.
func (p *idleProbe) peerClosedUnread() bool { return true }

// IsConnClosed cannot be determined on this platform.
func IsConnClosed(net.Conn) bool { return false }
