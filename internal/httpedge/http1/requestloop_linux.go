package http1

import (
	"context"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// loopScratchBytes is the size of the buffer that a loop reads into, in bytes: one read of one connection.
	loopScratchBytes = 64 << 10
	// maxLoopRequest bounds a request with its body on a loop, in bytes. Scanning and hashing take about 0.2 us per KB, and
	// all other requests wait meanwhile.
	maxLoopRequest = 128 << 10
	// partialWait is how long a loop waits for the rest of a request before a goroutine does, which judges its timeouts.
	partialWait = 100 * time.Millisecond
	// sweepInterval is the longest time between two checks of deadlines.
	sweepInterval = time.Second
	// quietTime is how long a loop without events goes on to wait on its processor. Then it waits as any system call does,
	// so that an idle process costs nothing. A shorter time would have it pay for that in each pause.
	quietTime = 10 * time.Millisecond
	// acceptRetry is the pause after a failed accept, such as for lack of descriptors.
	acceptRetry = 50 * time.Millisecond
	// maxAcceptsPerTurn bounds the connections accepted in one turn, so that open ones are served too.
	maxAcceptsPerTurn = 64
)

// requestLoop serves requests on one goroutine with one epoll, without a goroutine for a connection or a request. It owns
// the descriptors of its clients and upstreams. See DESIGN.md.
type requestLoop struct {
	server  *Server
	config  *LoopConfig
	baseCtx context.Context

	epollFD, wakeFD, listenFD int
	done                      chan struct{} // closed when the loop has ended
	open                      atomic.Int64  // connections of clients

	mu      sync.Mutex
	posted  []func() // calls to make on the loop
	waiting bool     // wakeFD must be written to
	ended   bool     // no more calls are made

	// The following fields belong to the goroutine of the loop.
	slots      []loopSlot
	freeSlots  []int
	idle       loopClient // ring of idle clients, the longest idle first
	upstreams  upstreamPool
	buffers    loopBuffers
	scratch    []byte
	out        []byte
	head       headScan
	decoder    bodyDecoder
	decoded    readBufConn // what decoder reads from
	decoding   []byte
	request    LoopRequest
	answer     LoopAnswer
	now        time.Time
	nextSweep  time.Time
	acceptFrom time.Time // no accepts before
	stopping   bool      // accepts no more
}

// loopSlot is the owner of a descriptor. Its generation tells an event from one of the slot's last owner.
type loopSlot struct {
	client     *loopClient
	upstream   *loopUpstream
	generation uint32
}

// Slots of epoll events that are no connection.
const (
	wakeSlot   = -1
	listenSlot = -2
)

var raiseProcessors sync.Once

// newRequestLoop creates a loop that accepts from l.
func newRequestLoop(s *Server, l *net.TCPListener, base context.Context) (*requestLoop, error) {
	loop := &requestLoop{server: s, config: s.loopConfig, baseCtx: base, epollFD: -1, wakeFD: -1, listenFD: -1, done: make(chan struct{})}
	if err := loop.openDescriptors(l); err != nil {
		loop.closeDescriptors()
		return nil, err
	}
	loop.idle.idleNext, loop.idle.idlePrev = &loop.idle, &loop.idle
	loop.upstreams.idle = map[string][]*loopUpstream{}
	loop.scratch, loop.out = make([]byte, loopScratchBytes), make([]byte, 0, loopScratchBytes)
	raiseProcessors.Do(func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) }) // its raw wait occupies one
	return loop, nil
}

func (l *requestLoop) openDescriptors(from *net.TCPListener) (err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { l.listenFD, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return cerr
	}
	if err == nil {
		err = setAcceptedOptions(l.listenFD)
	}
	if err == nil {
		l.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	}
	if err == nil {
		l.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_ADD, l.wakeFD, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: wakeSlot})
	}
	if err == nil {
		err = l.watchListener(unix.EPOLL_CTL_ADD)
	}
	return os.NewSyscallError("opening a request loop", err)
}

// setAcceptedOptions sets on a listening socket what accepted ones inherit: the options that package net sets.
func setAcceptedOptions(fd int) error {
	for _, o := range [...]struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return err
		}
	}
	return nil
}

func (l *requestLoop) watchListener(op int) error {
	return unix.EpollCtl(l.epollFD, op, l.listenFD, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: listenSlot})
}

func (l *requestLoop) closeDescriptors() {
	if l.listenFD >= 0 {
		_ = unix.Close(l.listenFD) // a duplicate
		l.listenFD = -1
	}
	if l.wakeFD >= 0 {
		_ = unix.Close(l.wakeFD)
	}
	if l.epollFD >= 0 {
		_ = unix.Close(l.epollFD)
	}
}

// postCall makes a call on the loop. It returns false if the loop has ended.
func (l *requestLoop) postCall(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.posted = append(l.posted, f)
	if l.waiting {
		l.waiting = false
		one := [8]byte{1}
		_, _ = unix.Write(l.wakeFD, one[:]) // a full eventfd is already signalled
	}
	return true
}

// run serves until the loop accepts no more and has no clients.
func (l *requestLoop) run() {
	defer close(l.done)
	events := make([]unix.EpollEvent, 256)
	var calls []func()
	l.now = time.Now()
	active := l.now // when the loop last had work
	for {
		l.mu.Lock()
		calls, l.posted = l.posted, calls[:0]
		if len(calls) == 0 && l.stopping && l.open.Load() == 0 {
			l.ended = true
			l.mu.Unlock()
			l.upstreams.closeAll()
			l.closeDescriptors()
			return
		}
		l.waiting = len(calls) == 0
		l.mu.Unlock()
		for i, f := range calls {
			calls[i] = nil
			f()
		}
		var n int
		switch {
		case len(calls) > 0:
			n = l.waitEvents(events, 0)
		case l.now.Sub(active) >= quietTime:
			n = l.parkForEvents(events)
		default:
			n = l.waitEvents(events, -1)
		}
		if l.now = time.Now(); n > 0 || len(calls) > 0 {
			active = l.now
		}
		for i := range n {
			l.handleEvent(&events[i])
		}
		if !l.now.Before(l.nextSweep) {
			l.sweepDeadlines()
		}
	}
}

// waitEvents waits for events on this processor. Its signals are those of streamLoop.waitEvents: the runtime ends a wait
// after 10 to 20 ms. A timeout of epoll would do that too, but arming its timer costs as much as the wait itself.
//
//go:noinline
func (l *requestLoop) waitEvents(events []unix.EpollEvent, timeout int) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(l.epollFD), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(timeout), 0, 0)
	if errno != 0 {
		return 0 // the runtime needs the processor
	}
	return int(n)
}

// parkForEvents waits for events without a processor, until the next sweep if there is anything to sweep. The descriptor
// of the loop must not be in the poller of the runtime instead: each event would then wake a thread there.
func (l *requestLoop) parkForEvents(events []unix.EpollEvent) int {
	timeout := -1
	if l.open.Load() > 0 || l.upstreams.idleCount > 0 || l.listenPaused() {
		timeout = max(0, int(l.nextSweep.Sub(l.now)/time.Millisecond)+1)
	}
	n, err := unix.EpollWait(l.epollFD, events, timeout)
	if err != nil {
		return 0 // a signal
	}
	return n
}

func (l *requestLoop) handleEvent(e *unix.EpollEvent) {
	switch e.Fd {
	case wakeSlot:
		return // the posted calls are made in the next turn; the event is edge-triggered
	case listenSlot:
		l.acceptClients()
		return
	}
	slot := &l.slots[e.Fd]
	switch {
	case slot.generation != uint32(e.Pad):
	case slot.client != nil:
		slot.client.handleEvents(e.Events)
	case slot.upstream != nil:
		slot.upstream.handleEvents(e.Events)
	}
}

// keepOut keeps the memory of a turn's output.
func (l *requestLoop) keepOut(out []byte) {
	if cap(out) <= maxLoopRequest+loopScratchBytes {
		l.out = out[:0]
	}
}

// addSlot registers a descriptor and returns its slot.
func (l *requestLoop) addSlot(fd int, c *loopClient, u *loopUpstream) (int, error) {
	if len(l.freeSlots) == 0 {
		l.slots = append(l.slots, loopSlot{})
		l.freeSlots = append(l.freeSlots, len(l.slots)-1)
	}
	n := l.freeSlots[len(l.freeSlots)-1]
	l.slots[n].client, l.slots[n].upstream = c, u
	if err := l.watchSlot(unix.EPOLL_CTL_ADD, fd, n, unix.EPOLLIN); err != nil {
		l.slots[n].client, l.slots[n].upstream = nil, nil
		return 0, err
	}
	l.freeSlots = l.freeSlots[:len(l.freeSlots)-1]
	return n, nil
}

// watchSlot sets which events of a descriptor are reported, besides its end.
func (l *requestLoop) watchSlot(op, fd, slot int, events uint32) error {
	return unix.EpollCtl(l.epollFD, op, fd, &unix.EpollEvent{Events: events | unix.EPOLLRDHUP, Fd: int32(slot), Pad: int32(l.slots[slot].generation)})
}

// removeSlot ends the registration of a descriptor. Closing is not enough: a duplicate may stay open.
func (l *requestLoop) removeSlot(fd, slot int) {
	_ = unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_DEL, fd, nil) // it may not be registered
	s := &l.slots[slot]
	s.client, s.upstream = nil, nil
	s.generation++
	l.freeSlots = append(l.freeSlots, slot)
}

func (l *requestLoop) listenPaused() bool { return !l.acceptFrom.IsZero() }

// acceptClients accepts what waits.
func (l *requestLoop) acceptClients() {
	for range maxAcceptsPerTurn {
		if l.stopping {
			return
		}
		fd, _, err := unix.Accept4(l.listenFD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.addClient(fd, 0, true)
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED:
		default:
			l.server.logf("accepting a connection: %v; trying again in %v", err, acceptRetry)
			_ = unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_DEL, l.listenFD, nil) // it would be reported without end
			l.acceptFrom = l.now.Add(acceptRetry)
			l.nextSweep = l.acceptFrom
			return
		}
	}
}

// sweepDeadlines ends what has waited for too long, and sets the time of the next sweep.
func (l *requestLoop) sweepDeadlines() {
	l.nextSweep = l.now.Add(sweepInterval)
	for i := range l.slots {
		c := l.slots[i].client
		switch {
		case c == nil || c.deadline.IsZero():
		case l.now.Before(c.deadline):
			l.sweepBy(c.deadline)
		default:
			c.handleDeadline()
		}
	}
	l.upstreams.closeExpired(l.now)
	if l.listenPaused() && !l.stopping {
		if l.now.Before(l.acceptFrom) {
			l.nextSweep = l.acceptFrom
		} else {
			l.acceptFrom = time.Time{}
			_ = l.watchListener(unix.EPOLL_CTL_ADD) // it was removed
		}
	}
}

// sweepBy makes the next sweep no later than t; zero: no change.
func (l *requestLoop) sweepBy(t time.Time) {
	if !t.IsZero() && t.Before(l.nextSweep) {
		l.nextSweep = t
	}
}

// serveOnLoop serves a listener by a request loop. It returns false if that is not possible.
func (s *Server) serveOnLoop(l net.Listener, base context.Context) (error, bool) {
	tcp, ok := l.(*net.TCPListener)
	if !ok || s.loopConfig == nil {
		return nil, false
	}
	loop, err := newRequestLoop(s, tcp, base)
	if err != nil {
		s.logf("serving without a request loop: %v", err)
		return nil, false
	}
	s.mu.Lock()
	s.loop = loop
	stopped := s.stopping.Load()
	s.mu.Unlock()
	go loop.run()
	if stopped {
		loop.stopAccepting()
	}
	<-s.stopped
	return http.ErrServerClosed, true
}

// stopAccepting stops accepting. The loop ends with its last connection.
func (l *requestLoop) stopAccepting() {
	l.postCall(func() {
		if l.stopping {
			return
		}
		l.stopping = true
		_ = unix.EpollCtl(l.epollFD, unix.EPOLL_CTL_DEL, l.listenFD, nil) // it may be removed already
		_ = unix.Close(l.listenFD)                                        // a duplicate
		l.listenFD = -1
	})
}

// closeIdle closes the connections without a request and returns the number of all.
func (l *requestLoop) closeIdle() int {
	l.postCall(func() {
		for c := l.idle.idleNext; c != &l.idle; {
			next := c.idleNext
			if !c.fresh || l.now.Sub(c.acceptedAt) > newConnGrace {
				c.closeClient()
			}
			c = next
		}
	})
	return int(l.open.Load())
}

// closeAll ends all connections. Requests in progress end as if their clients had left.
func (l *requestLoop) closeAll() {
	l.postCall(func() {
		for i := range l.slots {
			if c := l.slots[i].client; c != nil {
				c.handleGone()
			}
		}
	})
}

// awaitEnd waits until the loop has ended.
func (l *requestLoop) awaitEnd() { <-l.done }

// base is the context of the connections.
func (l *requestLoop) base() context.Context { return l.baseCtx }

// closeDescriptor closes a descriptor that is not used.
func closeDescriptor(fd int) { _ = unix.Close(fd) }

// returnConn gives a connection back that is idle after a goroutine has served it.
func (l *requestLoop) returnConn(fd, declines int) bool {
	return l.postCall(func() {
		if l.stopping {
			_ = unix.Close(fd) // idle
			return
		}
		l.addClient(fd, declines, false)
	})
}
