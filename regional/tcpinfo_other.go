//go:build !linux

package regional

import (
	"net"
	"time"
)

// tcpRTT works on Linux only: elsewhere steering uses distance.
func tcpRTT(*net.TCPConn) (time.Duration, bool) { return 0, false }
