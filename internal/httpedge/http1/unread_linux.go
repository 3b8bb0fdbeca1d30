package http1

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerClosedUnread reports whether the other side closed a connection without reading the last bytes sent on
// it. A server that closes with bytes unread, or before they arrive, answers them with a reset. If its process
// dies after reading them, the connection ends in order with everything acknowledged. It is called after the
// end of the connection was read.
func (p *idleProbe) peerClosedUnread() bool {
	if p.rawConn == nil {
		return true
	}
	reset := false
	err := p.rawConn.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err != nil || info.State == tcpClose || info.Unacked > 0 || info.Notsent_bytes > 0
	})
	return err != nil || reset
}

// tcpClose is TCP_CLOSE of include/net/tcp_states.h, the state after a reset.
const tcpClose = 7

// tcpEstablished is TCP_ESTABLISHED of the same file.
const tcpEstablished = 1

// IsConnClosed reports whether either side has closed an idle connection. Pending bytes are ignored: TLS may
// have sent session tickets.
func IsConnClosed(c net.Conn) bool {
	p := newIdleProbe(c)
	if p.rawConn == nil {
		return false
	}
	over := false
	err := p.rawConn.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		over = err == nil && info.State != tcpEstablished
	})
	return err != nil || over
}
