package http1

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clientState is what a connection of a client waits for.
type clientState uint8

const (
	clientIdle     clientState = iota // a request
	clientReading                     // the rest of a request
	clientQueued                      // the handler
	clientDialing                     // a connection to the upstream
	clientWaiting                     // the answer
	clientRelaying                    // the rest of the answer
	clientEnding                      // the client, before the end of an answer that the loop has completely
	clientDraining                    // the client, after the end of the exchange
	clientGone                        // nothing: the connection is closed or has left the loop
)

// loopClient is one connection of a client. Only its loop uses it, except where a method says otherwise.
type loopClient struct {
	loop       *requestLoop
	fd, slot   int
	conn       *loopConn
	state      clientState
	fresh      bool // it has sent nothing yet
	muted      bool // nothing is read from it: it sends although a request is in progress
	closeAfter bool // the connection ends with the answer
	keepLength bool // the answer is sent in its length, otherwise in chunks
	declines   int  // requests in a row that were not for the loop
	acceptedAt time.Time
	deadline   time.Time // of the present state; zero: none

	buf   []byte // of the request; nil between requests
	n     int    // bytes in buf
	head  int    // length of the head in buf; 0 while unknown
	total int    // length of the request in buf
	split []byte // the head, where the body has its own memory and buf is released

	exchange LoopExchange
	turn     uint64 // number of the exchange
	upstream *loopUpstream
	request  []byte // to be sent once the upstream is dialled
	target   string
	cancel   context.CancelFunc // of the dial
	unsent   []byte             // written but not accepted by the kernel

	idleNext, idlePrev *loopClient // not nil while idle
}

// addClient takes a connection: a new one, or one that a goroutine has served.
func (l *requestLoop) addClient(fd, declines int, fresh bool) {
	if most := l.config.MaxConns; most > 0 && int(l.open.Load()) >= most && l.idle.idleNext != &l.idle {
		l.idle.idleNext.closeClient()
	}
	c := &loopClient{loop: l, fd: fd, acceptedAt: l.now, fresh: fresh, declines: declines}
	var err error
	if c.slot, err = l.addSlot(fd, c, nil); err != nil {
		l.server.logf("watching a connection: %v", err)
		_ = unix.Close(fd) // it cannot be served
		return
	}
	l.open.Add(1)
	if report := l.server.httpServer.ConnState; report != nil {
		c.conn = &loopConn{c}
		report(c.conn, http.StateNew)
		report(c.conn, http.StateActive) // the loop itself closes idle ones
	}
	c.enterIdle()
	if c.fresh {
		c.setTimeout(l.server.headTimeout())
	}
}

func (c *loopClient) setTimeout(d time.Duration) {
	if c.deadline = (time.Time{}); d > 0 {
		c.deadline = c.loop.now.Add(d)
	}
}

// enterIdle waits for the next request.
func (c *loopClient) enterIdle() {
	l := c.loop
	c.state = clientIdle
	c.setTimeout(l.server.idleTimeout())
	if c.idleNext == nil {
		c.idlePrev, c.idleNext = l.idle.idlePrev, &l.idle
		c.idlePrev.idleNext, c.idleNext.idlePrev = c, c
	}
}

func (c *loopClient) leaveIdle() {
	if c.idleNext != nil {
		c.idlePrev.idleNext, c.idleNext.idlePrev = c.idleNext, c.idlePrev
		c.idleNext, c.idlePrev = nil, nil
	}
	c.fresh = false
}

// handleEvents handles what epoll reports.
func (c *loopClient) handleEvents(events uint32) {
	if events&unix.EPOLLOUT != 0 && len(c.unsent) > 0 {
		c.flushUnsent()
	}
	switch c.state {
	case clientGone:
	case clientIdle, clientReading:
		if events&^uint32(unix.EPOLLOUT) != 0 {
			c.readRequest()
		}
	default:
		switch {
		case events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0:
			c.handleGone()
		case events&unix.EPOLLIN != 0: // the next request, or bytes that make no sense
			c.muted = true
			c.watch()
		}
	}
}

// watch sets which events are reported.
func (c *loopClient) watch() {
	var events uint32
	if !c.muted {
		events |= unix.EPOLLIN
	}
	if len(c.unsent) > 0 {
		events |= unix.EPOLLOUT
	}
	_ = c.loop.watchSlot(unix.EPOLL_CTL_MOD, c.fd, c.slot, events) // it is registered
}

// receive reads what is available into p. blocked means that nothing is.
func receive(fd int, p []byte) (n int, blocked bool, err error) {
	r, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(r), false, nil
	case syscall.EAGAIN, syscall.EINTR: // epoll reports it again
		return 0, true, nil
	}
	return 0, false, errno
}

// readRequest reads a request or its rest.
func (c *loopClient) readRequest() {
	l := c.loop
	into := l.scratch
	if c.buf != nil {
		into = c.buf[c.n:]
	}
	n, blocked, err := receive(c.fd, into)
	switch {
	case blocked:
		return
	case err != nil || n == 0:
		if c.state == clientReading { // the request is incomplete: net/http answers it
			c.exitUnread(ExitSyntax)
			return
		}
		c.closeClient()
		return
	}
	if c.buf == nil {
		c.leaveIdle()
		c.keepBytes(l.scratch[:n])
	} else {
		c.n += n
	}
	c.examineRequest()
}

// keepBytes moves bytes of a request into a buffer of the connection.
func (c *loopClient) keepBytes(b []byte) {
	c.buf = c.loop.buffers.takeBuffer(len(b))
	c.n = copy(c.buf, b)
}

// examineRequest starts the request in buf, waits for its rest, or has another path serve it.
func (c *loopClient) examineRequest() {
	l := c.loop
	most := maxLoopRequest
	if limit := l.server.httpServer.MaxHeaderBytes; limit > 0 {
		most = limit
	}
	if c.head = findHeadEnd(c.buf[:c.n]); c.head == 0 || c.head > most || !l.head.scanRequest(c.buf[:c.head]) || int64(c.head)+l.head.contentLength > maxLoopRequest {
		c.exitUnread(ExitSyntax)
		return
	}
	if c.total = c.head + int(l.head.contentLength); c.n >= c.total {
		c.endReading()
		c.startRequest()
		return
	}
	if c.total > len(c.buf) {
		larger := l.buffers.takeBuffer(c.total)
		copy(larger, c.buf[:c.n])
		l.buffers.putBuffer(c.buf)
		c.buf = larger
	}
	if c.state == clientReading {
		return
	}
	c.state = clientReading
	c.setTimeout(partialWait)
	l.sweepBy(c.deadline)
}

func (c *loopClient) endReading() {
	if c.state == clientReading {
		c.state = clientIdle
	}
}

// startRequest starts the request that is complete in buf.
func (c *loopClient) startRequest() {
	l := c.loop
	c.turn++
	c.closeAfter = l.stopping || l.head.closeAfter
	r := &l.request
	*r = LoopRequest{Path: l.head.path, Lines: l.head.lines, Body: c.buf[c.head:c.total:c.total], Now: l.now, Out: l.out[:0], client: c}
	exchange, action := l.config.Handler.StartRequest(r)
	if action == LoopDecline {
		l.keepOut(r.Out)
		c.exitUnread(ExitDeclined)
		return
	}
	c.exchange = exchange
	if c.split != nil && action != LoopContinue {
		l.buffers.putBuffer(c.buf)
		c.buf = nil
	}
	c.actOn(r, action)
}

// resumeRequest has the handler decide again about a request that waits.
func (c *loopClient) resumeRequest() {
	r := &c.loop.request
	*r = LoopRequest{Now: c.loop.now, Out: c.loop.out[:0], client: c}
	c.actOn(r, c.exchange.Resume(r))
}

// actOn does what the handler has decided.
func (c *loopClient) actOn(r *LoopRequest, action LoopAction) {
	l := c.loop
	l.keepOut(r.Out)
	switch action {
	case LoopWait:
		c.state, c.deadline = clientQueued, r.WaitUntil
		l.sweepBy(c.deadline)
		return
	case LoopContinue:
		c.handOver(HandOver{}, ExitDecided)
		return
	}
	c.target, c.deadline = r.Upstream, time.Time{}
	if u := l.upstreams.takeIdle(r.Upstream); u != nil {
		c.sendTo(u, r.Out)
		return
	}
	c.request = append([]byte(nil), r.Out...)
	c.dialUpstream()
}

// dialUpstream connects to the target on a goroutine.
func (c *loopClient) dialUpstream() {
	l, turn := c.loop, c.turn
	c.state = clientDialing
	ctx, cancel := context.WithCancel(l.baseCtx)
	c.cancel = cancel
	address := c.target
	go func() {
		fd, err := dialDescriptor(ctx, l.config.Dial, address)
		if !l.postCall(func() { c.handleDialed(turn, fd, err) }) && err == nil {
			_ = unix.Close(fd) // the loop has ended
		}
	}()
}

// dialDescriptor dials and takes the connection out of the poller of the runtime.
func dialDescriptor(ctx context.Context, dial func(context.Context, string) (net.Conn, error), address string) (int, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return -1, err
	}
	fd := -1
	if raw := rawConnOf(conn); raw != nil {
		if err = raw.Control(func(from uintptr) { fd = dupDescriptor(from) }); err == nil && fd < 0 {
			err = syscall.EMFILE
		}
	} else {
		err = net.UnknownNetworkError("no descriptor")
	}
	_ = conn.Close() // the duplicate is open
	if err != nil {
		return -1, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return fd, nil
}

// handleDialed sends the request once the upstream is connected.
func (c *loopClient) handleDialed(turn uint64, fd int, err error) {
	l := c.loop
	wanted := c.turn == turn && c.state == clientDialing
	if wanted {
		c.cancel()
		c.cancel = nil
	}
	if err == nil {
		u := &loopUpstream{loop: l, fd: fd, target: c.target}
		if u.slot, err = l.addSlot(fd, nil, u); err != nil {
			_ = unix.Close(fd) // it cannot be served
		} else if wanted {
			request := c.request
			c.request = nil
			c.sendTo(u, request)
			return
		} else {
			u.closeUpstream()
		}
	}
	if wanted {
		c.handOver(HandOver{Sent: &SentRequest{err: err}}, ExitUnsent)
	}
}

// sendTo sends the request to an upstream.
func (c *loopClient) sendTo(u *loopUpstream, request []byte) {
	c.state, c.upstream, u.client = clientWaiting, u, c
	u.relaying, u.paused, u.trailer, u.partial = false, false, nil, u.partial[:0]
	c.setTimeout(c.loop.config.AnswerTimeout)
	n, err := writeNonblocking(uintptr(u.fd), request)
	if err != nil || n < len(request) {
		u.unsent = append([]byte(nil), request[n:]...)
		if err == nil {
			u.watch()
			return
		}
		c.handOver(HandOver{Sent: u.takeSent(nil, err)}, ExitUnsent)
	}
}

// currentRef returns the reference of the present exchange.
func (c *loopClient) currentRef() LoopRef { return LoopRef{client: c, turn: c.turn} }

// abortTurn implements LoopRef.Abort.
func (c *loopClient) abortTurn(turn uint64) {
	c.loop.postCall(func() {
		if c.turn == turn && c.exchange != nil {
			c.handOverAt(ErrAborted, ExitAborted)
		}
	})
}

// wakeTurn implements LoopRef.Wake.
func (c *loopClient) wakeTurn(turn uint64) {
	c.loop.postCall(func() {
		if c.turn == turn && c.state == clientQueued {
			c.resumeRequest()
		}
	})
}

// splitBody implements LoopRequest.OwnBody.
func (c *loopClient) splitBody(body []byte) []byte {
	c.split = append(make([]byte, 0, c.head), c.buf[:c.head]...)
	own := append(make([]byte, 0, len(body)), body...)
	if c.n > c.total { // the beginning of the next request follows
		c.split = append(c.split, c.buf[c.total:c.n]...)
	}
	return own
}

// completeExchange ends an exchange whose answer the client has.
func (c *loopClient) completeExchange() {
	c.endExchange()
	c.finishTurn()
}

func (c *loopClient) endExchange() {
	x := c.exchange
	c.exchange = nil
	c.turn++ // references to it have no effect
	x.Complete(c.loop.now)
	if f := c.loop.config.OnComplete; f != nil {
		f()
	}
}

// finishTurn makes the connection ready for its next request, or closes it.
func (c *loopClient) finishTurn() {
	l := c.loop
	if c.closeAfter || l.stopping {
		c.closeClient()
		return
	}
	var next []byte
	if c.split != nil {
		next = c.split[c.head:]
	} else {
		next = c.buf[c.total:c.n]
	}
	c.declines = 0
	old := c.buf
	c.buf, c.n, c.head, c.total, c.split = nil, 0, 0, 0, nil
	c.state = clientIdle
	if len(next) > 0 {
		c.keepBytes(next)
		l.buffers.putBuffer(old)
		c.examineRequest() // it only sends: the answer is another event
		return
	}
	l.buffers.putBuffer(old)
	c.enterIdle()
	if c.muted {
		c.muted = false
		c.watch()
	}
}

// handleDeadline ends what the connection has waited for too long.
func (c *loopClient) handleDeadline() {
	switch {
	case c.state == clientReading:
		c.exitUnread(ExitSyntax)
	case c.state == clientQueued:
		c.handOver(HandOver{}, ExitDecided)
	case c.exchange != nil && len(c.unsent) == 0:
		c.handOverAt(ErrSilent, ExitAborted)
	case c.exchange != nil:
		c.handleGone()
	default:
		c.closeClient()
	}
}

// handleGone handles a client that has closed its connection or stopped reading.
func (c *loopClient) handleGone() {
	switch {
	case c.state == clientGone:
	case c.exchange != nil:
		c.handOverAt(errClientGone, ExitClient)
	default:
		c.closeClient()
	}
}

// leaveLoop takes the connection out of the loop, without closing it.
func (c *loopClient) leaveLoop(last http.ConnState) {
	l := c.loop
	c.endReading()
	c.leaveIdle()
	c.state = clientGone
	l.removeSlot(c.fd, c.slot)
	l.open.Add(-1)
	if report := l.server.httpServer.ConnState; report != nil {
		report(c.conn, last)
	}
}

// closeClient closes a connection without a request in progress.
func (c *loopClient) closeClient() {
	if c.state == clientGone {
		return
	}
	c.leaveLoop(http.StateClosed)
	_ = unix.Close(c.fd) // a close error has no effect
	if c.split == nil {
		c.loop.buffers.putBuffer(c.buf)
	}
	c.buf = nil
}

// exitUnread has the server serve the connection from its unread bytes on. Nothing was recorded about the request.
func (c *loopClient) exitUnread(why LoopExit) {
	l := c.loop
	l.server.beginAdoption()
	bytes := append([]byte(nil), c.buf[:c.n]...)
	declines := c.declines + 1
	c.leaveLoop(http.StateHijacked)
	l.buffers.putBuffer(c.buf)
	c.buf = nil
	if f := l.config.OnHandOver; f != nil {
		f(why)
	}
	go l.server.adoptConn(c.fd, bytes, declines, l)
}

// handOverAt has a goroutine continue the request, from the point that it has reached.
func (c *loopClient) handOverAt(err error, why LoopExit) {
	switch c.state {
	case clientEnding:
		if err == errClientGone {
			c.handOver(HandOver{Begun: true, Err: err}, why)
		} // otherwise nothing: the answer is complete
	case clientQueued:
		c.handOver(HandOver{Err: err}, why)
	case clientDialing:
		c.handOver(HandOver{Sent: &SentRequest{err: err}}, why)
	case clientWaiting:
		c.handOver(HandOver{Sent: c.upstream.takeSent(c.upstream.partial, err)}, why)
	default:
		c.handOver(HandOver{Begun: true, Err: err}, why)
	}
}

// handOver has a goroutine continue the request.
func (c *loopClient) handOver(at HandOver, why LoopExit) {
	l := c.loop
	l.server.beginAdoption()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	if u := c.upstream; u != nil {
		c.upstream, u.client = nil, nil
		u.closeUpstream() // an answer that has begun does not go on; otherwise takeSent has the connection
	}
	a := &adoptedRequest{
		fd: c.fd, exchange: c.exchange, at: at, unsent: c.unsent, chunked: !c.keepLength, closeAfter: c.closeAfter || l.stopping,
		clientGone: at.Err == errClientGone || at.Sent != nil && at.Sent.err == errClientGone,
	}
	if c.split != nil {
		a.head, a.next = c.split[:c.head], c.split[c.head:]
	} else {
		a.head, a.next = c.buf[:c.head], c.buf[c.total:c.n] // the buffer also has the body: it is not reused
	}
	c.exchange, c.unsent, c.buf = nil, nil, nil
	c.turn++
	c.leaveLoop(http.StateHijacked)
	if f := l.config.OnHandOver; f != nil {
		f(why)
	}
	go l.server.adoptRequest(a, l)
}
