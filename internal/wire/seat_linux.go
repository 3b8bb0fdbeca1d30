package wire

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canFollow says that streams can be followed.
const canFollow = true

// maxTurn is how many pieces of one stream are passed on before others have their turn.
const maxTurn = 16

// seat is one stream that is followed. Only its loop uses it, but for loop and cable.
type seat struct {
	loop *loop
	c    *serverConn
	w    *responseWriter
	body *responseBody
	f    Follower

	cable *cable
	fd    int  // -1 when the cable is not lent any more
	slot  int  // -1 before it begins and after it has left
	dry   bool // the kernel has nothing more, as far as is known
	held  bool // a goroutine writes to a client that is slow; nothing is read meanwhile

	drained bool  // that is done; the loop's lock guards it
	lost    error // what came of it
}

// begin has the cable lent to a loop; false when that cannot be.
func (s *seat) begin() bool {
	l := cableOf(s.body.link)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.conn == nil {
		return false
	}
	raw := rawOf(l.conn)
	if raw == nil {
		return false
	}
	if s.loop = theLoop(); s.loop == nil {
		return false // there are no descriptors left to make one
	}
	err := raw.Control(func(fd uintptr) { s.fd = dup(fd) })
	if err != nil || s.fd < 0 {
		return false
	}
	// The runtime would be woken by every piece as well, and the one way to have it look away is to close its descriptor.
	_ = l.conn.Close() // the other one is there
	s.cable = l
	l.conn, l.seat = nil, s
	s.body.link.lent = true
	s.loop.post(s)
	return true
}

func dup(fd uintptr) int {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return n
}

// land takes a link's descriptor back from the loop, if that has it; false when it was closed.
func (l *link) land() bool {
	at := cableOf(l)
	if at == nil {
		return true
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	s := at.seat
	switch {
	case at.closed:
		return false
	case s == nil:
		return true
	}
	s.loop.ignore(s)
	f := os.NewFile(uintptr(s.fd), "tcp")
	if f == nil {
		return false
	}
	at.conn, at.seat = &returned{File: f, local: at.local, remote: at.remote}, nil
	s.fd, l.lent = -1, false
	if l.raw != nil {
		l.raw = rawOf(at.conn)
	}
	return true
}

// pump passes on what there is. It returns what is to be done with the seat.
func (s *seat) pump() verdict {
	s.dry = false
	for range maxTurn {
		p, err := s.body.Next()
		if err == errWait {
			return stays
		}
		if !s.f.Piece(p, err) {
			return leaves
		}
		if len(s.c.outlet.rest) > 0 {
			return waits
		}
	}
	return again
}

// read is what the cable reads while it is lent.
func (s *seat) read(p []byte) (int, error) {
	switch {
	case s.fd < 0:
		return 0, net.ErrClosed
	case s.dry || len(p) == 0:
		return 0, errWait
	}
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			s.dry = int(n) < len(p)
			if n == 0 {
				return 0, io.EOF
			}
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.dry = true
			return 0, errWait
		default:
			return 0, s.failure("read", errno)
		}
	}
}

// write is what the cable writes while it is lent.
func (s *seat) write(p []byte) (int, error) {
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := rawWrite(uintptr(s.fd), p)
	if err == nil && n < len(p) {
		err = syscall.EAGAIN
	}
	if err != nil {
		return n, s.failure("write", err)
	}
	return n, nil
}

func (s *seat) failure(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.cable.local, Addr: s.cable.remote, Err: os.NewSyscallError(op, err)}
}

// rawWrite writes what the kernel takes at once.
func rawWrite(fd uintptr, p []byte) (int, error) {
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

// attempt writes what the kernel takes at once.
func (o *outlet) attempt(fd uintptr) { o.n, o.err = rawWrite(fd, o.p) }
