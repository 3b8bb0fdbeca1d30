package http1

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// streamLoop forwards the pieces of many streams on one goroutine. It waits in the kernel without informing the
// scheduler: a piece costs one wait, one read and one write, and wakes no other goroutine. It runs while it has
// streams.
//
// The goroutine occupies a processor (P) of the scheduler while it waits, so GOMAXPROCS is raised by one for
// it. A signal of the runtime ends a wait when the runtime needs the processor, for a collection or after 10
// ms.
type streamLoop struct {
	epollFD, wakeFD int

	mu      sync.Mutex
	posted  []*detachedStream // streams that need attention
	waiting bool              // wakeFD must be written to
	running bool

	streams           []*detachedStream // by slot; this and the fields below belong to the loop
	freeSlots         []int
	active            int
	startedGoroutines bool // goroutines were started in this turn
}

// streamLoops holds the loops of the process, created on demand. They never end: a loop without streams costs
// two descriptors.
var streamLoops struct {
	mu   sync.Mutex
	all  []*streamLoop
	next int
}

// processorsPerLoop is the number of processors per loop: one loop is saturated at about 100,000 events/s.
const processorsPerLoop = 8

// pickLoop returns the loop for the next stream, or nil if none could be created.
func pickLoop() *streamLoop {
	streamLoops.mu.Lock()
	defer streamLoops.mu.Unlock()
	if streamLoops.all == nil {
		for range max(1, runtime.GOMAXPROCS(0)/processorsPerLoop) {
			if l := newStreamLoop(); l != nil {
				streamLoops.all = append(streamLoops.all, l)
			}
		}
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + len(streamLoops.all))
	}
	if len(streamLoops.all) == 0 {
		return nil
	}
	streamLoops.next = (streamLoops.next + 1) % len(streamLoops.all)
	return streamLoops.all[streamLoops.next]
}

func newStreamLoop() *streamLoop {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1})
		if err != nil {
			_ = unix.Close(bell) // never used
		}
	}
	if err != nil {
		_ = unix.Close(ep) // never used
		return nil
	}
	return &streamLoop{epollFD: ep, wakeFD: bell}
}

// pumpResult is what happens next with a stream.
type pumpResult int

const (
	pumpIdle       pumpResult = iota
	pumpEnd                   // the stream has ended
	pumpClientSlow            // wait for a slow client
	pumpMore                  // more is available; other streams first
)

// postStream asks the loop to look at a stream.
func (l *streamLoop) postStream(s *detachedStream) {
	l.mu.Lock()
	l.posted = append(l.posted, s)
	ring, start := l.waiting, !l.running
	l.waiting, l.running = false, true
	l.mu.Unlock()
	switch {
	case start:
		go l.runLoop()
	case ring:
		one := [8]byte{1}
		_, _ = unix.Write(l.wakeFD, one[:]) // a full eventfd is already signalled
	}
}

// runLoop forwards until there are no streams.
func (l *streamLoop) runLoop() {
	events := make([]unix.EpollEvent, 128)
	var list []*detachedStream
	for {
		l.mu.Lock()
		list, l.posted = l.posted, list[:0]
		if len(list) == 0 && l.active == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.waiting = len(list) == 0
		l.mu.Unlock()
		for i, s := range list {
			list[i] = nil
			l.handlePosted(s)
		}
		timeout := 0
		if len(list) == 0 {
			timeout = -1
		}
		if l.startedGoroutines {
			l.startedGoroutines = false
			runtime.Gosched() // they wait for a processor, perhaps this one
		}
		for i := range l.waitEvents(events, timeout) {
			if at := int(events[i].Fd); at >= 0 && at < len(l.streams) && l.streams[at] != nil {
				l.pumpStream(l.streams[at])
			}
		}
	}
}

// waitEvents waits for events. The call is the point at which the runtime, whose signal ended the last wait,
// gets the processor: it may need to stop this goroutine to scan its stack. runtime.Gosched would drop that
// request and return here, for as long as a collection on a busy machine does not check in between.
//
//go:noinline
func (l *streamLoop) waitEvents(events []unix.EpollEvent, timeout int) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.epollFD), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(timeout), 0, 0)
	if errno != 0 {
		return 0 // the runtime needs the processor
	}
	return int(n)
}

// handlePosted handles a posted stream: it is new, its slow client has drained, it has more to read, or its
// connection was closed.
func (l *streamLoop) handlePosted(s *detachedStream) {
	switch {
	case s.writer == nil: // already removed
		return
	case s.slot < 0:
		l.addStream(s)
	case s.clientBlocked && l.takeDrained(s):
		s.clientBlocked = false
		s.handler.SetClientBlocked(false)
		if s.writeErr != nil {
			s.handler.HandleWriteError(s.writeErr)
			l.removeStream(s)
			return
		}
		l.watchDescriptor(s, unix.EPOLL_CTL_ADD)
	}
	s.upstream.mu.Lock()
	closed := s.upstream.closed
	s.upstream.mu.Unlock()
	if closed && s.fd >= 0 {
		_ = unix.Close(s.fd) // closing also removes it from epoll
		s.fd = -1
	}
	if !s.clientBlocked {
		l.pumpStream(s)
	}
}

// takeDrained reports whether a slow client has received what was buffered for it, or has failed.
func (l *streamLoop) takeDrained(s *detachedStream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := s.clientDrained
	s.clientDrained = false
	return was
}

// addStream assigns a slot to a stream.
func (l *streamLoop) addStream(s *detachedStream) {
	if n := len(l.freeSlots); n > 0 {
		s.slot, l.freeSlots = l.freeSlots[n-1], l.freeSlots[:n-1]
	} else {
		s.slot = len(l.streams)
		l.streams = append(l.streams, nil)
	}
	l.streams[s.slot] = s
	l.active++
	l.watchDescriptor(s, unix.EPOLL_CTL_ADD)
}

// watchDescriptor registers the descriptor of a stream with epoll. If registration fails, the next read shows
// it.
func (l *streamLoop) watchDescriptor(s *detachedStream, op int) {
	if s.fd >= 0 {
		_ = unix.EpollCtl(l.epollFD, op, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(s.slot)})
	}
}

// unwatchDescriptor removes the registration.
func (l *streamLoop) unwatchDescriptor(s *detachedStream) {
	if s.fd >= 0 {
		_ = unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_DEL, s.fd, nil) // it may not be registered
	}
}

// pumpStream forwards what a stream has.
func (l *streamLoop) pumpStream(s *detachedStream) {
	if s.clientBlocked {
		return
	}
	switch s.pumpChunks() {
	case pumpEnd:
		l.removeStream(s)
	case pumpClientSlow:
		l.drainClient(s)
	case pumpMore:
		l.postStream(s)
	}
}

// drainClient starts a goroutine that writes to a slow client, for at most the write timeout. Nothing is read
// from the stream until then.
func (l *streamLoop) drainClient(s *detachedStream) {
	s.clientBlocked = true
	s.handler.SetClientBlocked(true)
	l.unwatchDescriptor(s)
	l.startedGoroutines = true
	go func() {
		err := s.conn.clientWriter.flushUnsent()
		l.mu.Lock()
		s.writeErr, s.clientDrained = err, true
		l.mu.Unlock()
		l.postStream(s)
	}()
}

// removeStream ends a detached stream.
func (l *streamLoop) removeStream(s *detachedStream) {
	l.streams[s.slot] = nil
	l.freeSlots = append(l.freeSlots, s.slot)
	l.active--
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // the rest is not needed
		s.fd = -1
	}
	c, w, f := s.conn, s.writer, s.handler
	s.conn, s.writer, s.body, s.handler = nil, nil, nil, nil
	c.clientWriter.nonBlocking = false
	l.startedGoroutines = true
	go c.resumeFromLoop(w, f)
}
