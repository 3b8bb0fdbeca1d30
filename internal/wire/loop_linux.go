package wire

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop passes the pieces of many streams on, on one goroutine that waits in the kernel without telling the scheduler: a
// piece costs one wait, one read and one write, and wakes nothing else of this process. It runs while it has streams.
//
// The goroutine holds a processor of the scheduler's while it waits, so there is one more of those. The runtime's signal
// ends a wait that it wants the processor of, for a collection or because 10 ms are over.
type loop struct {
	ep, bell int

	mu     sync.Mutex
	todo   []*seat // that somebody has posted
	asleep bool    // the bell must be rung
	runs   bool

	seats []*seat // by slot; the rest is the loop's own
	free  []int
	n     int
	begun bool // goroutines were started in this turn
}

// loops are the process's, made when they are needed. They have no end: one without streams is two descriptors.
var loops struct {
	mu   sync.Mutex
	all  []*loop
	next int
}

// processorsEach is how many processors there are to one loop: it is busy with some 100,000 events a second.
const processorsEach = 8

// theLoop is the one for the next stream; nil when there is none.
func theLoop() *loop {
	loops.mu.Lock()
	defer loops.mu.Unlock()
	if loops.all == nil {
		for range max(1, runtime.GOMAXPROCS(0)/processorsEach) {
			if l := newLoop(); l != nil {
				loops.all = append(loops.all, l)
			}
		}
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + len(loops.all))
	}
	if len(loops.all) == 0 {
		return nil
	}
	loops.next = (loops.next + 1) % len(loops.all)
	return loops.all[loops.next]
}

func newLoop() *loop {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1})
		if err != nil {
			_ = unix.Close(bell) // it was never used
		}
	}
	if err != nil {
		_ = unix.Close(ep) // as above
		return nil
	}
	return &loop{ep: ep, bell: bell}
}

// verdict is what is to be done with a seat.
type verdict int

const (
	stays  verdict = iota
	leaves         // it is over
	waits          // for a slow client
	again          // it has more, after the others
)

// post has the loop look at a seat.
func (l *loop) post(s *seat) {
	l.mu.Lock()
	l.todo = append(l.todo, s)
	ring, start := l.asleep, !l.runs
	l.asleep, l.runs = false, true
	l.mu.Unlock()
	switch {
	case start:
		go l.run()
	case ring:
		one := [8]byte{1}
		_, _ = unix.Write(l.bell, one[:]) // a bell that is full rings already
	}
}

// run passes on until there are no streams.
func (l *loop) run() {
	events := make([]unix.EpollEvent, 128)
	var list []*seat
	for {
		l.mu.Lock()
		list, l.todo = l.todo, list[:0]
		if len(list) == 0 && l.n == 0 {
			l.runs = false
			l.mu.Unlock()
			return
		}
		l.asleep = len(list) == 0
		l.mu.Unlock()
		for i, s := range list {
			list[i] = nil
			l.look(s)
		}
		timeout := 0
		if len(list) == 0 {
			timeout = -1
		}
		if l.begun {
			l.begun = false
			runtime.Gosched() // they wait for a processor, perhaps this one
		}
		for i := range l.wait(events, timeout) {
			if at := int(events[i].Fd); at >= 0 && at < len(l.seats) && l.seats[at] != nil {
				l.turn(l.seats[at])
			}
		}
	}
}

// wait waits for events. The call of it is where the runtime, whose signal has ended the last wait, gets the processor: it
// may want this goroutine to stop for its stack to be scanned, and runtime.Gosched would forget that and come back here,
// for as long as a collection on a busy machine does not look just in between.
//
//go:noinline
func (l *loop) wait(events []unix.EpollEvent, timeout int) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(timeout), 0, 0)
	if errno != 0 {
		return 0 // the runtime wants the processor
	}
	return int(n)
}

// look deals with a seat that was posted: it is new, its client has taken what was kept for it, it has more, or its cable
// was closed.
func (l *loop) look(s *seat) {
	switch {
	case s.w == nil: // it has left
		return
	case s.slot < 0:
		l.seat(s)
	case s.held && l.taken(s):
		s.held = false
		s.f.Held(false)
		if s.lost != nil {
			s.f.Unsent(s.lost)
			l.leave(s)
			return
		}
		l.heed(s, unix.EPOLL_CTL_ADD)
	}
	s.cable.mu.Lock()
	closed := s.cable.closed
	s.cable.mu.Unlock()
	if closed && s.fd >= 0 {
		_ = unix.Close(s.fd) // the kernel forgets it with that
		s.fd = -1
	}
	if !s.held {
		l.turn(s)
	}
}

// taken says that a slow client has taken what was kept for it, or never will.
func (l *loop) taken(s *seat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := s.drained
	s.drained = false
	return was
}

// seat gives a stream its place.
func (l *loop) seat(s *seat) {
	if n := len(l.free); n > 0 {
		s.slot, l.free = l.free[n-1], l.free[:n-1]
	} else {
		s.slot = len(l.seats)
		l.seats = append(l.seats, nil)
	}
	l.seats[s.slot] = s
	l.n++
	l.heed(s, unix.EPOLL_CTL_ADD)
}

// heed has the kernel tell of a seat's cable. What cannot be watched shows when it is read.
func (l *loop) heed(s *seat, op int) {
	if s.fd >= 0 {
		_ = unix.EpollCtl(l.ep, op, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(s.slot)})
	}
}

// ignore ends that.
func (l *loop) ignore(s *seat) {
	if s.fd >= 0 {
		_ = unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, s.fd, nil) // it may not be watched
	}
}

// turn passes on what a stream has.
func (l *loop) turn(s *seat) {
	if s.held {
		return
	}
	switch s.pump() {
	case leaves:
		l.leave(s)
	case waits:
		l.hold(s)
	case again:
		l.post(s)
	}
}

// hold has a goroutine write to a slow client, for as long as a write may take. Nothing is read until then.
func (l *loop) hold(s *seat) {
	s.held = true
	s.f.Held(true)
	l.ignore(s)
	l.begun = true
	go func() {
		err := s.c.outlet.drain()
		l.mu.Lock()
		s.lost, s.drained = err, true
		l.mu.Unlock()
		l.post(s)
	}()
}

// leave ends the following.
func (l *loop) leave(s *seat) {
	l.seats[s.slot] = nil
	l.free = append(l.free, s.slot)
	l.n--
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // nobody wants the rest
		s.fd = -1
	}
	c, w, f := s.c, s.w, s.f
	s.c, s.w, s.body, s.f = nil, nil, nil, nil
	c.outlet.eager = false
	l.begun = true
	go c.resumed(w, f)
}
