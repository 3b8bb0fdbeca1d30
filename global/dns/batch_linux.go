package dns

import (
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many messages one system call reads or writes at most.
const batchSize = 32

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

// swapPortBytes converts a port from network byte order to host byte order.
func swapPortBytes(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// The zone is the interface index: it only has to return unchanged to the kernel.
func formatScopeID(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseScopeID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
