//go:build !linux

package regional

import (
	"net"
	"time"
)

// tcpRTT is known on Linux alone: elsewhere steering goes by distance.
func tcpRTT(*net.TCPConn) (time.Duration, bool) { return 0, false }
