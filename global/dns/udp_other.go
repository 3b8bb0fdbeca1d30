//go:build !linux

package dns

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// canSharePort is false: one socket with several readers serves an address.
const canSharePort = false

func listenUDP(addr netip.AddrPort, _ bool) (*net.UDPConn, error) {
	return net.ListenUDP("udp"+networkSuffix(addr), net.UDPAddrFromAddrPort(addr))
}

func replyControl([]byte) []byte { return nil }

// udpSocket is one UDP socket with several readers.
type udpSocket struct{ conn *net.UDPConn }

// readersPerSocket is how many readers a socket has: systems without Linux's SO_REUSEPORT get one socket.
var readersPerSocket = DefaultReaders()

func newSocket(conn *net.UDPConn, _, _ bool) (*udpSocket, error) { return &udpSocket{conn: conn}, nil }

func (s *udpSocket) stopReading()   { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }
func (s *udpSocket) releaseSocket() { _ = s.conn.Close() }

func (s *udpSocket) sendReply(b, oob []byte, to netip.AddrPort) {
	_, _, _ = s.conn.WriteMsgUDPAddrPort(b, oob, to)
}

// readLoop reads, answers and writes one message after the other until the socket is closed.
func (r *udpReader) readLoop() {
	in, out := make([]byte, maxQueryLen+1), make([]byte, maxUDPSize+64)
	for {
		n, _, _, from, err := r.sock.conn.ReadMsgUDPAddrPort(in, nil)
		if errors.Is(err, net.ErrClosed) || isTimeout(err) {
			return
		}
		if err != nil { // an ICMP error for an earlier answer, or no memory: no reason to spin or to end
			time.Sleep(errorPause)
			continue
		}
		if n > maxQueryLen {
			continue // the buffer was too small and the rest is lost
		}
		begin := r.clock.currentTime()
		length, slow := r.answerQuery(out[:maxUDPSize], in[:n], from.Addr(), begin)
		if slow {
			r.passToSlowPath(in[:n], nil, from)
		}
		r.lastDuration = time.Since(begin)
		r.reportCounts(begin)
		if length > 0 {
			r.sock.sendReply(out[:length], nil, from)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
