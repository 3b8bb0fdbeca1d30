//go:build !linux

package dns

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// socket is one UDP socket with several readers.
type socket struct{ conn *net.UDPConn }

// readersEach is how many readers a socket has: systems without SO_REUSEPORT as Linux has it get one socket.
var readersEach = Readers()

func newSocket(conn *net.UDPConn, _, _ bool) (*socket, error) { return &socket{conn: conn}, nil }

func (s *socket) close()   { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }
func (s *socket) release() { _ = s.conn.Close() }

func (s *socket) reply(b, oob []byte, to netip.AddrPort) {
	_, _, _ = s.conn.WriteMsgUDPAddrPort(b, oob, to)
}

// run reads, answers and writes one message after the other until the socket is closed.
func (r *reader) run() {
	in, out := make([]byte, maxQuery+1), make([]byte, ourSize+64)
	for {
		n, _, _, from, err := r.sock.conn.ReadMsgUDPAddrPort(in, nil)
		if errors.Is(err, net.ErrClosed) || isTimeout(err) {
			return
		}
		if err != nil { // an ICMP error for an earlier answer, or a system out of memory: never a reason to spin or end
			time.Sleep(errorPause)
			continue
		}
		if n > maxQuery {
			continue // the rest of it is lost
		}
		begin := r.clock.now()
		length, slow := r.answer(out[:ourSize], in[:n], from.Addr(), begin)
		if slow {
			r.decline(in[:n], nil, from)
		}
		r.took = time.Since(begin)
		r.report(begin)
		if length > 0 {
			r.sock.reply(out[:length], nil, from)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
