package dnsload

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sockets   = 8    // so that the server's sockets, and a resolver's many ports, are all used
	perSocket = 4096 // queries of one socket that may be outstanding; a power of two
	batch     = 32
	largest   = 1232
	buffer    = 4 << 20 // bytes
)

// slot is one outstanding query.
type slot struct {
	due  time.Duration // since the run began
	id   uint16
	want byte
	busy bool
}

// header is the kernel's struct mmsghdr.
type header struct {
	msg unix.Msghdr
	n   uint32
}

// messages is the memory of one batched system call.
type messages struct {
	headers [batch]header
	vectors [batch]unix.Iovec
	bytes   [batch][]byte
}

func newMessages(size int, fill []byte) *messages {
	m := &messages{}
	for i := range batch {
		m.bytes[i] = make([]byte, size)
		copy(m.bytes[i], fill)
		m.vectors[i].Base = &m.bytes[i][0]
		m.vectors[i].SetLen(size)
		m.headers[i].msg.Iov = &m.vectors[i]
		m.headers[i].msg.SetIovlen(1)
	}
	return m
}

// socket is one source of queries.
type socket struct {
	fd          int
	next        uint16 // id
	outstanding int
	slots       [perSocket]slot
}

// run is one Load at work.
type run struct {
	*Load
	Result
	q         []byte
	question  int // length of header and question
	sockets   [sockets]*socket
	turn      int
	out, in   *messages
	subnet    int
	began     time.Time
	latencies latencies
}

// Run asks for as long as d or until ctx ends, and then waits for what is still outstanding.
func (l *Load) Run(ctx context.Context, d time.Duration) (Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := *l
	r := &run{Load: &mine, q: Question(l.Name, 24)}
	r.question = len(r.q) - 11 - 4 - 7
	r.out, r.in = newMessages(len(r.q), r.q), newMessages(largest, nil)
	r.Window, r.Patience = cmp.Or(r.Window, 128), cmp.Or(r.Patience, 500*time.Millisecond)
	defer func() {
		for _, s := range r.sockets {
			if s != nil {
				_ = unix.Close(s.fd)
			}
		}
	}()
	for i := range r.sockets {
		fd, err := dial(l.Server)
		if err != nil {
			return Result{}, fmt.Errorf("opening a socket to %s: %w", l.Server, err)
		}
		r.sockets[i] = &socket{fd: fd}
	}
	r.began = time.Now()
	swept := time.Duration(0)
	for now := time.Duration(0); now < d && ctx.Err() == nil; now = time.Since(r.began) {
		if r.Rate > 0 {
			r.keepRate(now)
		} else {
			r.keepWindow(now)
		}
		if now-swept > r.Patience/8 {
			swept = now
			r.sweep(now)
		}
	}
	r.Took = time.Since(r.began)
	for time.Since(r.began) < r.Took+r.Patience && r.waiting() {
		for _, s := range r.sockets {
			r.receive(s)
		}
	}
	r.sweep(time.Hour)
	r.latencies.fill(&r.Result)
	return r.Result, nil
}

func dial(to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// keepRate sends what is due, from one socket after the other, and reads what came.
func (r *run) keepRate(now time.Duration) {
	s := r.sockets[r.turn%sockets]
	r.turn++
	if due := int(now.Seconds()*r.Rate) - int(r.Sent); due > 0 {
		r.send(s, min(due, 8), func() time.Duration { return time.Duration(float64(r.Sent) / r.Rate * float64(time.Second)) })
	}
	r.receive(s)
}

// keepWindow sends as much as is missing.
func (r *run) keepWindow(now time.Duration) {
	for _, s := range r.sockets {
		r.receive(s)
		if room := r.Window/sockets - s.outstanding; room > 0 {
			r.send(s, min(room, batch), func() time.Duration { return now })
		}
	}
}

// send sends n queries. One that finds its slot taken has been outstanding for so long that it is lost.
func (r *run) send(s *socket, n int, due func() time.Duration) {
	for i := range n {
		id := s.next
		s.next++
		at := &s.slots[id%perSocket]
		if at.busy {
			r.Lost++
			s.outstanding--
		}
		p := r.Subnets[r.subnet]
		if r.subnet++; r.subnet == len(r.Subnets) {
			r.subnet = 0
		}
		*at = slot{due: due(), id: id, busy: true}
		if r.Want != nil {
			at.want = r.Want[p]
		}
		b := r.out.bytes[i]
		binary.BigEndian.PutUint16(b, id)
		b[len(b)-3], b[len(b)-2], b[len(b)-1] = byte(p>>16), byte(p>>8), byte(p)
		s.outstanding++
		r.Sent++
	}
	for done := 0; done < n; {
		k, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&r.out.headers[done])), uintptr(n-done), 0, 0, 0)
		if errno != 0 {
			return // they are lost, and will be counted so
		}
		done += int(k)
	}
}

func (r *run) receive(s *socket) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&r.in.headers[0])), batch, 0, 0, 0)
		if errno != 0 {
			return
		}
		now := time.Since(r.began)
		for i := range int(n) {
			r.take(s, r.in.bytes[i][:r.in.headers[i].n], now)
		}
		if n < batch {
			return
		}
	}
}

// take counts one answer.
func (r *run) take(s *socket, b []byte, now time.Duration) {
	if len(b) < r.question {
		r.Bad++
		return
	}
	id := binary.BigEndian.Uint16(b)
	at := &s.slots[id%perSocket]
	if !at.busy || at.id != id {
		return // too late: it is counted as lost
	}
	at.busy = false
	s.outstanding--
	first := pastName(b, r.question)
	if b[2]&0x80 == 0 || b[3]&0x0f != 0 || b[7] == 0 || first+14 > len(b) {
		r.Bad++
		return
	}
	if at.want != 0 && b[first+13] != at.want {
		r.Wrong++
	}
	r.Answered++
	r.latencies = append(r.latencies, int32((now-at.due)/time.Microsecond))
}

// sweep counts what has not been answered for too long.
func (r *run) sweep(now time.Duration) {
	for _, s := range r.sockets {
		for i := range s.slots {
			if at := &s.slots[i]; at.busy && now-at.due > r.Patience {
				at.busy = false
				s.outstanding--
				r.Lost++
			}
		}
	}
}

func (r *run) waiting() bool {
	for _, s := range r.sockets {
		if s.outstanding > 0 {
			return true
		}
	}
	return false
}
