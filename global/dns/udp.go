package dns

import (
	"errors"
	"net"
	"time"
)

// maxQuery is the largest query that is read over UDP, in bytes: padded ones exceed 512.
const maxQuery = 4096

// controlSize holds one control message of either family.
const controlSize = 64

// errorPause is how long a reader rests when the socket fails.
const errorPause = time.Millisecond

// serveUDP reads, answers and writes one message after the other until the socket is closed. There is no goroutine
// and no queue for each query, so a flood costs lost packets and never memory.
func (s *Server) serveUDP(sock *socket) {
	in, out := make([]byte, maxQuery+1), make([]byte, 2*ourSize)
	var oob []byte
	if sock.control {
		oob = make([]byte, controlSize)
	}
	for {
		n, oobn, _, from, err := sock.conn.ReadMsgUDPAddrPort(in, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error for an earlier answer, or a system out of memory: never a reason to spin or end
			time.Sleep(errorPause)
			continue
		}
		if n > maxQuery {
			continue // the rest of it is lost
		}
		reply, ok := s.answer(out, in[:n], from.Addr(), false)
		if !ok {
			continue
		}
		// A client that cannot be reached asks again.
		_, _, _ = sock.conn.WriteMsgUDPAddrPort(reply, sourceControl(oob[:oobn]), from)
	}
}
