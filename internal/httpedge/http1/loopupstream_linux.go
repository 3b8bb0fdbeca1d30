package http1

import (
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswerHead bounds the head of an answer that arrives in pieces, in bytes.
const maxAnswerHead = 16 << 10

// loopUpstream is one connection to an upstream. It carries one request at a time.
type loopUpstream struct {
	loop      *requestLoop
	fd, slot  int
	target    string
	client    *loopClient // nil while idle
	reused    bool        // it has carried a request before
	paused    bool        // nothing is read: the client is slow
	relaying  bool        // the head of the answer was passed
	unsent    []byte      // of the request
	partial   []byte      // received but not decoded: the head until its body begins, or part of a line of the framing
	idleSince time.Time

	// The framing of the answer.
	closeAfter bool
	chunked    bool
	remaining  int64
	state      chunkState
	trailer    []byte
}

// watch sets which events are reported.
func (u *loopUpstream) watch() {
	var events uint32
	if !u.paused {
		events |= unix.EPOLLIN
	}
	if len(u.unsent) > 0 {
		events |= unix.EPOLLOUT
	}
	_ = u.loop.watchSlot(unix.EPOLL_CTL_MOD, u.fd, u.slot, events) // it is registered
}

// pause stops reading until the client has received what was written for it.
func (u *loopUpstream) pause() {
	u.paused = true
	_ = unix.EpollCtl(u.loop.epollFD, unix.EPOLL_CTL_DEL, u.fd, nil) // not only without events: its end would be reported without end
}

// resume reads again.
func (u *loopUpstream) resume() {
	u.paused = false
	_ = u.loop.watchSlot(unix.EPOLL_CTL_ADD, u.fd, u.slot, unix.EPOLLIN) // it was removed
}

// closeUpstream closes the connection, unless takeSent has passed it on.
func (u *loopUpstream) closeUpstream() {
	if u.fd < 0 {
		return
	}
	u.loop.removeSlot(u.fd, u.slot)
	_ = unix.Close(u.fd) // the rest is not needed
	u.fd = -1
}

// takeSent takes the connection out of the loop, with the bytes of the answer that were read.
func (u *loopUpstream) takeSent(read []byte, err error) *SentRequest {
	s := &SentRequest{fd: u.fd, hasConn: true, read: append([]byte(nil), read...), unsent: u.unsent, reused: u.reused, err: err}
	u.loop.removeSlot(u.fd, u.slot)
	u.fd = -1
	return s
}

// handleEvents handles what epoll reports.
func (u *loopUpstream) handleEvents(events uint32) {
	c := u.client
	if c == nil { // closed by the other side, or it sent unrequested bytes
		u.loop.upstreams.dropIdle(u)
		return
	}
	if len(u.unsent) > 0 {
		if events&^uint32(unix.EPOLLOUT) != 0 { // an answer before the end of the request, or none
			c.handOver(HandOver{Sent: u.takeSent(nil, nil)}, ExitUnsent)
			return
		}
		n, err := writeNonblocking(uintptr(u.fd), u.unsent)
		if u.unsent = u.unsent[n:]; err != nil {
			c.handOver(HandOver{Sent: u.takeSent(nil, err)}, ExitUnsent)
			return
		}
		if len(u.unsent) == 0 {
			u.unsent = nil
			u.watch()
		}
		return
	}
	u.readAnswer(c)
}

// readAnswer reads and relays what is available.
func (u *loopUpstream) readAnswer(c *loopClient) {
	l := u.loop
	kept := copy(l.scratch, u.partial)
	n, blocked, err := receive(u.fd, l.scratch[kept:])
	if blocked {
		return
	}
	if err != nil || n == 0 {
		if err == nil {
			err = io.EOF
		}
		if u.relaying {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			c.handOver(HandOver{Begun: true, Err: err}, ExitBroken)
			return
		}
		c.handOver(HandOver{Sent: u.takeSent(u.partial, err)}, ExitAnswer)
		return
	}
	c.setTimeout(l.config.AnswerTimeout)
	b := l.scratch[:kept+n]
	out := l.out[:0]
	if !u.relaying {
		head := findHeadEnd(b)
		if head == 0 {
			u.keepPartial(c, b)
			return
		}
		a := &l.answer
		if !l.head.scanAnswer(b[:head]) {
			c.handOver(HandOver{Sent: u.takeSent(b, nil)}, ExitAnswer)
			return
		}
		*a = LoopAnswer{Status: l.head.status, Lines: l.head.lines, ContentLength: l.head.contentLength, Now: l.now}
		u.chunked, u.remaining, u.state, u.closeAfter = l.head.chunked, max(l.head.contentLength, 0), atChunkSize, l.head.closeAfter
		begins, unusual := u.bodyBegins(b[head:])
		if unusual {
			c.handOver(HandOver{Sent: u.takeSent(b, nil)}, ExitAnswer)
			return
		}
		if !begins { // the head of an answer is passed with the first byte of its body
			u.keepPartial(c, b)
			return
		}
		var ok bool
		if out, c.keepLength, ok = c.exchange.AcceptAnswer(a, out); !ok {
			c.handOver(HandOver{Sent: u.takeSent(b, nil)}, ExitAnswer)
			return
		}
		out = c.appendAnswerFraming(out, a)
		u.relaying, c.state = true, clientRelaying
		b = b[head:]
	}
	u.partial = u.partial[:0]
	u.relayBytes(c, b, out)
}

// bodyBegins reports whether a piece of the body can be decoded from b, the bytes after the head. unusual means that it
// never will be: the body is empty, or its first chunk malformed.
func (u *loopUpstream) bodyBegins(b []byte) (begins, unusual bool) {
	if !u.chunked {
		return len(b) > 0, u.remaining == 0
	}
	line, ok := firstLine(b)
	if !ok {
		return false, false
	}
	size, ok := parseChunkSize(line)
	b = b[len(line)+2:]
	return len(b) > 0, !ok || size == 0
}

// keepPartial keeps the bytes of an answer whose body has not begun.
func (u *loopUpstream) keepPartial(c *loopClient, b []byte) {
	if len(b) > maxAnswerHead {
		c.handOver(HandOver{Sent: u.takeSent(b, nil)}, ExitAnswer)
		return
	}
	u.partial = append(u.partial[:0], b...)
}

// relayBytes decodes b and passes it on. out begins with the head if that was not sent yet.
func (u *loopUpstream) relayBytes(c *loopClient, b, out []byte) {
	l := u.loop
	l.decoding = b
	l.decoded = readBufConn{buf: &l.decoding, w: len(b)}
	d := &l.decoder
	*d = bodyDecoder{readBufConn: &l.decoded, remaining: u.remaining, chunked: u.chunked, state: u.state, trailer: u.trailer}
	piece, err := d.decodeBuffered()
	u.remaining, u.state, u.trailer = d.remaining, d.state, d.trailer
	rest := b[l.decoded.r:l.decoded.w]
	if len(piece) > 0 {
		passed, ok := c.exchange.PassChunk(piece, l.now)
		out = c.appendPiece(out, passed)
		if !ok {
			c.breakAnswer(out, errBrokenByHandler)
			return
		}
	}
	switch {
	case err == io.EOF:
		last, ok := c.exchange.EndBody()
		if !ok {
			c.breakAnswer(out, io.EOF)
			return
		}
		out = c.appendPiece(out, last)
		c.upstream, u.client = nil, nil
		if len(rest) > 0 || u.closeAfter || len(u.trailer) > 0 {
			u.closeUpstream()
		} else {
			u.partial = nil
			l.upstreams.putIdle(u, l.now)
		}
		l.keepOut(out)
		c.endAnswer(out)
		return
	case err != nil:
		c.breakAnswer(out, err)
		return
	}
	if len(rest) > 0 {
		u.partial = append(u.partial[:0], rest...)
	}
	if l.keepOut(out); len(out) > 0 {
		c.send(out)
	}
}
