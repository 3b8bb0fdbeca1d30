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

// wakeEvery ends a wait for messages, so that a dedicated reader sees that the scheduler wants its thread: with a
// timeout set, a signal ends the call instead of starting it again (signal(7)).
const wakeEvery = 100 * time.Millisecond

// socket is one UDP socket with its one reader, which waits in the system call itself. Package net would wake a
// poller and a scheduler for it, and its batches allocate an address for each message.
type socket struct {
	fd        int
	control   bool // messages carry the address that they were sent to
	dedicated bool
	closed    atomic.Bool
}

// readersEach is how many readers a socket has.
const readersEach = 1

// newSocket takes over a bound connection.
func newSocket(conn *net.UDPConn, control, dedicated bool) (*socket, error) {
	s := &socket{fd: -1, control: control, dedicated: dedicated}
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
	timeout := unix.NsecToTimeval(int64(wakeEvery))
	if err := unix.SetNonblock(s.fd, false); err != nil {
		return nil, err
	}
	return s, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
}

// close ends the wait of the socket's reader. Answers may still be written.
func (s *socket) close() {
	s.closed.Store(true)
	_ = unix.Shutdown(s.fd, unix.SHUT_RD) // it wakes the reader, though it fails where nothing is connected
}

// release gives the descriptor back. Nobody may use the socket any more.
func (s *socket) release() { _ = unix.Close(s.fd) }

// reply writes one answer of the slow path. A client that cannot be reached asks again.
func (s *socket) reply(b, oob []byte, to netip.AddrPort) {
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		zone, _ := parseZone(to.Addr().Zone())
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zone}
	}
	_, _ = unix.SendmsgN(s.fd, b, oob, sa, unix.MSG_DONTWAIT)
}

// header is the kernel's struct mmsghdr.
type header struct {
	msg unix.Msghdr
	n   uint32
}

// batch is the memory of one reader's system calls. The kernel writes into it, so it is allocated once and never
// moves; strides that are no power of two keep the messages apart in the caches.
type batch struct {
	used     int // how many messages the last call read
	in, out  [batchSize]header
	iin, iou [batchSize]unix.Iovec
	from     [batchSize]unix.RawSockaddrInet6
	oob      [batchSize][controlSize]byte
	queries  [batchSize][maxQuery + 64]byte
	answers  [batchSize][ourSize + 64]byte
}

func newBatch(control bool) *batch {
	b := &batch{used: batchSize}
	for i := range batchSize {
		b.iin[i].Base, b.iou[i].Base = &b.queries[i][0], &b.answers[i][0]
		b.iin[i].SetLen(maxQuery + 1)
		b.in[i].msg.Iov, b.out[i].msg.Iov = &b.iin[i], &b.iou[i]
		b.in[i].msg.SetIovlen(1)
		b.out[i].msg.SetIovlen(1)
		b.in[i].msg.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		if control {
			b.in[i].msg.Control = &b.oob[i][0]
		}
	}
	return b
}

// run answers until the socket is closed.
func (r *reader) run() {
	if r.sock.dedicated {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	b := newBatch(r.sock.control)
	defer func() { r.report(time.Now()) }()
	for !r.sock.closed.Load() {
		n, errno := b.receive(r.sock)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN:
			if r.sum > 0 {
				r.report(time.Now())
			}
			runtime.Gosched() // a dedicated reader's thread may be wanted
			continue
		case errno != 0: // an ICMP error for an earlier answer, or a system out of memory: never a reason to spin or end
			time.Sleep(errorPause)
			continue
		}
		if r.sock.closed.Load() {
			return // a closed socket reads as empty messages
		}
		begin := r.clock.now()
		ready := r.serve(b, n, begin)
		if r.due(begin) {
			r.took = time.Since(begin) / time.Duration(n)
			r.report(begin)
		}
		b.send(r.sock, ready)
	}
}

// receive waits for at least one message and takes all that are there.
func (b *batch) receive(s *socket) (int, syscall.Errno) {
	for i := range b.used { // what the last call wrote over
		b.in[i].msg.Namelen = unix.SizeofSockaddrInet6
		if s.control {
			b.in[i].msg.SetControllen(controlSize)
		}
	}
	var n uintptr
	var errno syscall.Errno
	if s.dedicated {
		n, _, errno = syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.in[0])), batchSize, unix.MSG_WAITFORONE, 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.in[0])), batchSize, unix.MSG_WAITFORONE, 0, 0)
	}
	if errno != 0 {
		b.used = batchSize
		return 0, errno
	}
	b.used = int(n)
	return b.used, 0
}

// serve answers n messages and returns how many answers stand in the batch.
func (r *reader) serve(b *batch, n int, now time.Time) (ready int) {
	for i := range n {
		size := int(b.in[i].n)
		if size > maxQuery {
			continue // the rest of it is lost
		}
		from, oob := b.peer(i), b.oob[i][:b.in[i].msg.Controllen]
		length, slow := r.answer(b.answers[ready][:ourSize], b.queries[i][:size], from.Addr(), now)
		if slow {
			r.decline(b.queries[i][:size], oob, from)
		}
		if length == 0 {
			continue
		}
		b.address(ready, i, sourceControl(oob))
		b.iou[ready].SetLen(length)
		ready++
	}
	return ready
}

// address sends an answer to where its query came from.
func (b *batch) address(answer, query int, oob []byte) {
	m := &b.out[answer].msg
	m.Name, m.Namelen = b.in[query].msg.Name, b.in[query].msg.Namelen
	m.Control = nil
	m.SetControllen(len(oob))
	if len(oob) > 0 {
		m.Control = &oob[0]
	}
}

// peer is where a message came from.
func (b *batch) peer(i int) netip.AddrPort {
	sa := &b.from[i]
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swapped(v4.Port))
	}
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 && a.IsLinkLocalUnicast() {
		a = a.WithZone(formatZone(sa.Scope_id))
	}
	return netip.AddrPortFrom(a, swapped(sa.Port))
}

// send writes the answers. One that cannot be written is lost: its client asks again.
func (b *batch) send(s *socket, ready int) {
	for done := 0; done < ready; {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.out[done])),
			uintptr(ready-done), unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			n = 1
		}
		done += int(n)
	}
}
