package dns

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// receiveTimeout ends a wait for messages, so that a dedicated reader notices when the scheduler needs its thread:
// with a timeout set, a signal ends the call instead of restarting it (signal(7)).
const receiveTimeout = 100 * time.Millisecond

// udpSocket is one UDP socket with its one reader, which waits in the system call itself. Package net would wake a
// poller and a scheduler for it, and its batches allocate an address for each message.
type udpSocket struct {
	fd        int
	control   bool // messages carry their destination address
	dedicated bool
	closed    atomic.Bool
}

// readersPerSocket is how many readers a socket has.
const readersPerSocket = 1

// newSocket takes ownership of a bound connection.
func newSocket(conn *net.UDPConn, control, dedicated bool) (*udpSocket, error) {
	s := &udpSocket{fd: -1, control: control, dedicated: dedicated}
	raw, err := conn.SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(fd uintptr) { s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		if err == nil {
			err = ctlErr
		}
	}
	_ = conn.Close()
	if err != nil {
		return nil, fmt.Errorf("taking over a UDP socket: %w", err)
	}
	timeout := unix.NsecToTimeval(int64(receiveTimeout))
	if err := unix.SetNonblock(s.fd, false); err != nil {
		return nil, err
	}
	return s, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
}

// stopReading ends the wait of the socket's reader. Answers may still be written.
func (s *udpSocket) stopReading() {
	s.closed.Store(true)
	_ = unix.Shutdown(s.fd, unix.SHUT_RD) // it wakes the reader, although it returns an error on an unconnected socket
}

// releaseSocket closes the descriptor. The socket must not be in use any more.
func (s *udpSocket) releaseSocket() { _ = unix.Close(s.fd) }

// sendReply writes one answer of the slow path. After an error the client asks again.
func (s *udpSocket) sendReply(b, oob []byte, to netip.AddrPort) {
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		zone, _ := parseScopeID(to.Addr().Zone())
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zone}
	}
	_, _ = unix.SendmsgN(s.fd, b, oob, sa, unix.MSG_DONTWAIT)
}

// readLoop answers until the socket is closed.
func (r *udpReader) readLoop() {
	if r.sock.dedicated {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	b := newMessageBatch(r.sock.control)
	defer func() { r.reportCounts(time.Now()) }()
	for !r.sock.closed.Load() {
		n, errno := b.receiveMessages(r.sock)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN:
			if r.total > 0 {
				r.reportCounts(time.Now())
			}
			runtime.Gosched() // a dedicated reader's thread may be needed
			continue
		case errno != 0: // an ICMP error for an earlier answer, or a system out of memory: never a reason to spin or end
			time.Sleep(errorPause)
			continue
		}
		if r.sock.closed.Load() {
			return // a closed socket reads as empty messages
		}
		begin := r.clock.currentTime()
		ready := r.answerBatch(b, n, begin)
		if r.isReportDue(begin) {
			r.lastDuration = time.Since(begin) / time.Duration(n)
			r.reportCounts(begin)
		}
		b.sendAnswers(r.sock, ready)
	}
}

// answerBatch answers n messages and returns the number of answers in the batch.
func (r *udpReader) answerBatch(b *messageBatch, n int, now time.Time) (ready int) {
	for i := range n {
		size := int(b.inHeaders[i].n)
		if size > maxQueryLen {
			continue // the buffer was too small and the rest is lost
		}
		from, oob := b.peerAddr(i), b.oob[i][:b.inHeaders[i].msg.Controllen]
		length, slow := r.answerQuery(b.answers[ready][:maxUDPSize], b.queries[i][:size], from.Addr(), now)
		if slow {
			r.passToSlowPath(b.queries[i][:size], oob, from)
		}
		if length == 0 {
			continue
		}
		b.setDestination(ready, i, replyControl(oob))
		b.outIovecs[ready].SetLen(length)
		ready++
	}
	return ready
}
