package dns

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many messages one system call reads or writes at most.
const batchSize = 32

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

// mmsgHeader is the kernel's struct mmsghdr.
type mmsgHeader struct {
	msg unix.Msghdr
	n   uint32
}

// messageBatch is the memory of one reader's system calls. The kernel writes into it, so it is allocated once and never
// moves; strides that are no power of two keep the messages apart in the caches.
type messageBatch struct {
	lastRead              int // number of messages that the last call read
	inHeaders, outHeaders [batchSize]mmsgHeader
	inIovecs, outIovecs   [batchSize]unix.Iovec
	from                  [batchSize]unix.RawSockaddrInet6
	oob                   [batchSize][controlSize]byte
	queries               [batchSize][maxQueryLen + 64]byte
	answers               [batchSize][maxUDPSize + 64]byte
}

func newMessageBatch(control bool) *messageBatch {
	b := &messageBatch{lastRead: batchSize}
	for i := range batchSize {
		b.inIovecs[i].Base, b.outIovecs[i].Base = &b.queries[i][0], &b.answers[i][0]
		b.inIovecs[i].SetLen(maxQueryLen + 1)
		b.inHeaders[i].msg.Iov, b.outHeaders[i].msg.Iov = &b.inIovecs[i], &b.outIovecs[i]
		b.inHeaders[i].msg.SetIovlen(1)
		b.outHeaders[i].msg.SetIovlen(1)
		b.inHeaders[i].msg.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		if control {
			b.inHeaders[i].msg.Control = &b.oob[i][0]
		}
	}
	return b
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

// receiveMessages waits for at least one message and reads all that are available.
func (b *messageBatch) receiveMessages(s *udpSocket) (int, syscall.Errno) {
	for i := range b.lastRead { // fields that the last call overwrote
		b.inHeaders[i].msg.Namelen = unix.SizeofSockaddrInet6
		if s.control {
			b.inHeaders[i].msg.SetControllen(controlSize)
		}
	}
	var n uintptr
	var errno syscall.Errno
	if s.dedicated {
		n, _, errno = syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.inHeaders[0])), batchSize, unix.MSG_WAITFORONE, 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.inHeaders[0])), batchSize, unix.MSG_WAITFORONE, 0, 0)
	}
	if errno != 0 {
		b.lastRead = batchSize
		return 0, errno
	}
	b.lastRead = int(n)
	return b.lastRead, 0
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

// setDestination addresses an answer to the source of its query.
func (b *messageBatch) setDestination(answer, query int, oob []byte) {
	m := &b.outHeaders[answer].msg
	m.Name, m.Namelen = b.inHeaders[query].msg.Name, b.inHeaders[query].msg.Namelen
	m.Control = nil
	m.SetControllen(len(oob))
	if len(oob) > 0 {
		m.Control = &oob[0]
	}
}

// peerAddr returns the source of a message.
func (b *messageBatch) peerAddr(i int) netip.AddrPort {
	sa := &b.from[i]
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swapPortBytes(v4.Port))
	}
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 && a.IsLinkLocalUnicast() {
		a = a.WithZone(formatScopeID(sa.Scope_id))
	}
	return netip.AddrPortFrom(a, swapPortBytes(sa.Port))
}

// sendAnswers writes the answers. One that cannot be written is lost: its client asks again.
func (b *messageBatch) sendAnswers(s *udpSocket, ready int) {
	for done := 0; done < ready; {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.outHeaders[done])),
			uintptr(ready-done), unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			n = 1
		}
		done += int(n)
	}
}
