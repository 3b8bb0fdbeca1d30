package http1

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canDetach reports whether streams can be detached.
const canDetach = true

// maxChunksPerTurn is how many pieces of one stream are forwarded before other streams have their turn.
const maxChunksPerTurn = 16

// detachedStream is one detached stream. Only its loop uses it, except for the fields loop and conn.
type detachedStream struct {
	loop    *streamLoop
	conn    *serverConn
	writer  *responseWriter
	body    *responseBody
	handler DetachHandler

	upstream      *lendableConn
	fd            int  // -1 when the descriptor is no longer lent
	slot          int  // -1 before it is added and after it is removed
	kernelEmpty   bool // the last read found the kernel buffer empty
	clientBlocked bool // a goroutine writes to a slow client; nothing is read meanwhile

	clientDrained bool  // that write has finished; guarded by the lock of the loop
	writeErr      error // the result of that write
}

// attachToLoop lends the descriptor to a loop. It returns false if that is not possible.
func (s *detachedStream) attachToLoop() bool {
	l := lendableConnOf(s.body.readBufConn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.conn == nil {
		return false
	}
	raw := rawConnOf(l.conn)
	if raw == nil {
		return false
	}
	if s.loop = pickLoop(); s.loop == nil {
		return false // no descriptors left to create a loop
	}
	err := raw.Control(func(fd uintptr) { s.fd = dupDescriptor(fd) })
	if err != nil || s.fd < 0 {
		return false
	}
	// The runtime poller would also be woken by every piece. The only way to unregister a connection from it is
	// to close its descriptor, so the loop uses a duplicate.
	_ = l.conn.Close() // the duplicate is open
	s.upstream = l
	l.conn, l.stream = nil, s
	s.body.readBufConn.lentToLoop = true
	s.loop.postStream(s)
	return true
}

func dupDescriptor(fd uintptr) int {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return n
}

// reclaimDescriptor takes the descriptor back from the loop, if the loop has it. It returns false if it was
// closed.
func (l *readBufConn) reclaimDescriptor() bool {
	at := lendableConnOf(l)
	if at == nil {
		return true
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	s := at.stream
	switch {
	case at.closed:
		return false
	case s == nil:
		return true
	}
	s.loop.unwatchDescriptor(s)
	f := os.NewFile(uintptr(s.fd), "tcp")
	if f == nil {
		return false
	}
	at.conn, at.stream = &reclaimedConn{File: f, localAddr: at.localAddr, remoteAddr: at.remoteAddr}, nil
	s.fd, l.lentToLoop = -1, false
	if l.rawConn != nil {
		l.rawConn = rawConnOf(at.conn)
	}
	return true
}

// pumpChunks forwards what is available and returns what happens next with the stream.
func (s *detachedStream) pumpChunks() pumpResult {
	s.kernelEmpty = false
	for range maxChunksPerTurn {
		p, err := s.body.NextChunk()
		if err == errWouldBlock {
			return pumpIdle
		}
		if !s.handler.HandleChunk(p, err) {
			return pumpEnd
		}
		if len(s.conn.clientWriter.unsent) > 0 {
			return pumpClientSlow
		}
	}
	return pumpMore
}

// readLent is Read of a lent connection.
func (s *detachedStream) readLent(p []byte) (int, error) {
	switch {
	case s.fd < 0:
		return 0, net.ErrClosed
	case s.kernelEmpty || len(p) == 0:
		return 0, errWouldBlock
	}
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			s.kernelEmpty = int(n) < len(p)
			if n == 0 {
				return 0, io.EOF
			}
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.kernelEmpty = true
			return 0, errWouldBlock
		default:
			return 0, s.opError("read", errno)
		}
	}
}

// writeLent is Write of a lent connection.
func (s *detachedStream) writeLent(p []byte) (int, error) {
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := writeNonblocking(uintptr(s.fd), p)
	if err == nil && n < len(p) {
		err = syscall.EAGAIN
	}
	if err != nil {
		return n, s.opError("write", err)
	}
	return n, nil
}

func (s *detachedStream) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.upstream.localAddr, Addr: s.upstream.remoteAddr, Err: os.NewSyscallError(op, err)}
}

// writeNonblocking writes what the kernel accepts at once.
func writeNonblocking(fd uintptr, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&p[done])), uintptr(len(p)-done), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			done += int(n)
		case syscall.EINTR:
		case syscall.EAGAIN:
			return done, nil
		default:
			return done, errno
		}
	}
	return done, nil
}

// writeNow writes what the kernel accepts at once.
func (o *clientWriter) writeNow(fd uintptr) { o.n, o.err = writeNonblocking(fd, o.p) }
