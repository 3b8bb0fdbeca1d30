package regional

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tcpRTT returns the round-trip time of a connection as measured by the kernel since the handshake. It prefers the
// minimum of the last minutes, because other values include queues and delayed acknowledgements. It is false when
// the kernel has none.
func tcpRTT(c *net.TCPConn) (time.Duration, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); cerr != nil || err != nil {
		return 0, false
	}
	micros := info.Min_rtt
	if micros == 0 || micros == ^uint32(0) { // an old kernel, or no measurement
		micros = info.Rtt
	}
	return time.Duration(micros) * time.Microsecond, micros > 0
}
