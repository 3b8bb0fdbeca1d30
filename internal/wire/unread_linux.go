package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// unread reports whether the other side closed a connection without having read what was sent on it last. A server that closes
// with bytes unread, or before they come, answers them with a reset; one whose process dies after it has read them ends the
// connection in order, with everything acknowledged. It is asked after the end of the connection was read.
func (p *peek) unread() bool {
	if p.raw == nil {
		return true
	}
	reset := false
	err := p.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err != nil || info.State == tcpClose || info.Unacked > 0 || info.Notsent_bytes > 0
	})
	return err != nil || reset
}

// tcpClose is TCP_CLOSE of include/net/tcp_states.h: the state after a reset.
const tcpClose = 7

// tcpEstablished is TCP_ESTABLISHED of the same.
const tcpEstablished = 1

// Ended reports whether a connection that is not in use was ended by either side. Bytes that wait on it do not matter: TLS may
// have sent its tickets.
func Ended(c net.Conn) bool {
	p := newPeek(c)
	if p.raw == nil {
		return false
	}
	over := false
	err := p.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		over = err == nil && info.State != tcpEstablished
	})
	return err != nil || over
}
