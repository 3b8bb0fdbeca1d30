package regional

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tcpRTT is the round trip of a connection as the kernel has it, from the handshake on: the least of the last minutes
// where it knows that, because queues and delayed acknowledgements are in the others. It is false when the kernel does
// not say.
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
	if micros == 0 || micros == ^uint32(0) { // an old kernel, or nothing was measured
		micros = info.Rtt
	}
	return time.Duration(micros) * time.Microsecond, micros > 0
}
