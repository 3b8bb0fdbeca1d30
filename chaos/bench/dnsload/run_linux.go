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
	socketCount        = 8    // so that all sockets of the server, and many ports of a resolver, are used
	slotsPerSocket     = 4096 // outstanding queries of one socket; a power of two
	batchSize          = 32
	maxAnswerBytes     = 1232
	receiveBufferBytes = 4 << 20 // bytes
)

// querySlot is one outstanding query.
type querySlot struct {
	due  time.Duration // since the start of the run
	id   uint16
	want byte
	busy bool
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	msg unix.Msghdr
	n   uint32
}

// messageBatch is the memory of one batched system call.
type messageBatch struct {
	headers [batchSize]mmsghdr
	vectors [batchSize]unix.Iovec
	bytes   [batchSize][]byte
}

func newMessageBatch(size int, fill []byte) *messageBatch {
	m := &messageBatch{}
	for i := range batchSize {
		m.bytes[i] = make([]byte, size)
		copy(m.bytes[i], fill)
		m.vectors[i].Base = &m.bytes[i][0]
		m.vectors[i].SetLen(size)
		m.headers[i].msg.Iov = &m.vectors[i]
		m.headers[i].msg.SetIovlen(1)
	}
	return m
}

// querySocket is one source of queries.
type querySocket struct {
	fd          int
	nextID      uint16 // id
	outstanding int
	slots       [slotsPerSocket]querySlot
}

// loadRun is one running QueryLoad.
type loadRun struct {
	*QueryLoad
	LoadResult
	query      []byte
	question   int // length of header and question
	sockets    [socketCount]*querySocket
	nextSocket int
	out, in    *messageBatch
	subnet     int
	startedAt  time.Time
	latencies  latencyList
}

// RunFor sends queries for d or until ctx ends, and then waits for the outstanding ones.
func (l *QueryLoad) RunFor(ctx context.Context, d time.Duration) (LoadResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := *l
	r := &loadRun{QueryLoad: &mine, query: MakeQuery(l.Name, 24)}
	r.question = len(r.query) - 11 - 4 - 7
	r.out, r.in = newMessageBatch(len(r.query), r.query), newMessageBatch(maxAnswerBytes, nil)
	r.Window, r.Timeout = cmp.Or(r.Window, 128), cmp.Or(r.Timeout, 500*time.Millisecond)
	defer func() {
		for _, s := range r.sockets {
			if s != nil {
				_ = unix.Close(s.fd)
			}
		}
	}()
	for i := range r.sockets {
		fd, err := dialUDP(l.Server)
		if err != nil {
			return LoadResult{}, fmt.Errorf("opening a socket to %s: %w", l.Server, err)
		}
		r.sockets[i] = &querySocket{fd: fd}
	}
	r.startedAt = time.Now()
	swept := time.Duration(0)
	for now := time.Duration(0); now < d && ctx.Err() == nil; now = time.Since(r.startedAt) {
		if r.Rate > 0 {
			r.keepRate(now)
		} else {
			r.keepWindow(now)
		}
		if now-swept > r.Timeout/8 {
			swept = now
			r.countLost(now)
		}
	}
	r.SendTime = time.Since(r.startedAt)
	for ended := false; !ended && r.hasOutstanding(); { // the sockets are read once more after the end: this thread may have been off its core
		ended = time.Since(r.startedAt) >= r.SendTime+r.Timeout
		for _, s := range r.sockets {
			r.receiveAnswers(s)
		}
	}
	r.countLost(time.Hour)
	r.latencies.fillQuantiles(&r.LoadResult)
	return r.LoadResult, nil
}

func dialUDP(to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBufferBytes)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// keepRate sends the queries that are due, from one socket after the other, and reads the answers.
func (r *loadRun) keepRate(now time.Duration) {
	s := r.sockets[r.nextSocket%socketCount]
	r.nextSocket++
	if due := int(now.Seconds()*r.Rate) - int(r.Sent); due > 0 {
		r.sendQueries(s, min(due, 8), func() time.Duration { return time.Duration(float64(r.Sent) / r.Rate * float64(time.Second)) })
	}
	r.receiveAnswers(s)
}

// keepWindow refills the window.
func (r *loadRun) keepWindow(now time.Duration) {
	for _, s := range r.sockets {
		r.receiveAnswers(s)
		if room := r.Window/socketCount - s.outstanding; room > 0 {
			r.sendQueries(s, min(room, batchSize), func() time.Duration { return now })
		}
	}
}

// sendQueries sends n queries. If a slot is in use, its query has been outstanding for so long that it is lost.
func (r *loadRun) sendQueries(s *querySocket, n int, due func() time.Duration) {
	for i := range n {
		id := s.nextID
		s.nextID++
		at := &s.slots[id%slotsPerSocket]
		if at.busy {
			r.Lost++
			s.outstanding--
		}
		p := r.Subnets[r.subnet]
		if r.subnet++; r.subnet == len(r.Subnets) {
			r.subnet = 0
		}
		*at = querySlot{due: due(), id: id, busy: true}
		if r.WantOctet != nil {
			at.want = r.WantOctet[p]
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
			return // they count as lost
		}
		done += int(k)
	}
}

func (r *loadRun) receiveAnswers(s *querySocket) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&r.in.headers[0])), batchSize, 0, 0, 0)
		if errno != 0 {
			return
		}
		now := time.Since(r.startedAt)
		for i := range int(n) {
			r.countAnswer(s, r.in.bytes[i][:r.in.headers[i].n], now)
		}
		if n < batchSize {
			return
		}
	}
}

// countAnswer counts one answer.
func (r *loadRun) countAnswer(s *querySocket, b []byte, now time.Duration) {
	if len(b) < r.question {
		r.Malformed++
		return
	}
	id := binary.BigEndian.Uint16(b)
	at := &s.slots[id%slotsPerSocket]
	if !at.busy || at.id != id {
		return // too late: it counts as lost
	}
	at.busy = false
	s.outstanding--
	first := skipName(b, r.question)
	if b[2]&0x80 == 0 || b[3]&0x0f != 0 || b[7] == 0 || first+14 > len(b) {
		r.Malformed++
		return
	}
	if at.want != 0 && b[first+13] != at.want {
		r.Wrong++
	}
	r.Answered++
	r.latencies = append(r.latencies, int32((now-at.due)/time.Microsecond))
}

// countLost counts queries that have timed out.
func (r *loadRun) countLost(now time.Duration) {
	for _, s := range r.sockets {
		for i := range s.slots {
			if at := &s.slots[i]; at.busy && now-at.due > r.Timeout {
				at.busy = false
				s.outstanding--
				r.Lost++
			}
		}
	}
}

func (r *loadRun) hasOutstanding() bool {
	for _, s := range r.sockets {
		if s.outstanding > 0 {
			return true
		}
	}
	return false
}
