package http1

import (
	"strconv"
	"time"
)

// send writes to the client. What the kernel does not accept is written later; nothing is read from the upstream until then.
func (c *loopClient) send(p []byte) {
	if len(c.unsent) > 0 {
		c.unsent = append(c.unsent, p...)
		return
	}
	n, err := writeNonblocking(uintptr(c.fd), p)
	if err != nil {
		c.handleGone()
		return
	}
	if n == len(p) {
		return
	}
	c.unsent = append([]byte(nil), p[n:]...)
	c.setTimeout(c.loop.config.WriteTimeout)
	c.watch()
	if c.exchange != nil {
		c.exchange.SetClientBlocked(true)
	}
	if c.upstream != nil {
		c.upstream.pause()
	}
}

// flushUnsent writes what the kernel did not accept before.
func (c *loopClient) flushUnsent() {
	n, err := writeNonblocking(uintptr(c.fd), c.unsent)
	if err != nil {
		c.handleGone()
		return
	}
	if c.unsent = c.unsent[n:]; len(c.unsent) > 0 {
		return
	}
	c.unsent = nil
	c.watch()
	if c.exchange != nil {
		c.exchange.SetClientBlocked(false)
	}
	switch c.state {
	case clientEnding:
		c.completeExchange()
	case clientDraining:
		c.finishTurn()
	case clientRelaying:
		c.setTimeout(c.loop.config.AnswerTimeout)
		c.upstream.resume()
	}
}

// appendAnswerFraming appends what follows the lines of the handler.
func (c *loopClient) appendAnswerFraming(out []byte, a *LoopAnswer) []byte {
	if c.keepLength {
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), a.ContentLength, 10), "\r\n"...)
	} else {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	if c.closeAfter {
		out = append(out, "Connection: close\r\n"...)
	}
	return append(out, "\r\n"...)
}

// appendPiece appends a piece of the body as it is sent.
func (c *loopClient) appendPiece(out, p []byte) []byte {
	if c.keepLength || len(p) == 0 {
		return append(out, p...)
	}
	out = append(strconv.AppendInt(out, int64(len(p)), 16), "\r\n"...)
	return append(append(out, p...), "\r\n"...)
}

// endAnswer sends the last bytes of an answer that the upstream has sent completely.
func (c *loopClient) endAnswer(out []byte) {
	if !c.keepLength {
		out = append(out, "0\r\n\r\n"...)
	}
	if len(c.unsent) > 0 { // the client must take it first
		c.state = clientEnding
		c.unsent = append(c.unsent, out...)
		return
	}
	c.state = clientDraining
	c.endExchange()
	c.deadline = time.Time{}
	if c.send(out); c.state == clientDraining && len(c.unsent) == 0 {
		c.finishTurn()
	}
}

// breakAnswer sends what there is of an answer and has a goroutine end it.
func (c *loopClient) breakAnswer(out []byte, err error) {
	if len(out) > 0 {
		c.send(out)
	}
	if c.state == clientRelaying {
		c.handOver(HandOver{Begun: true, Err: err}, ExitBroken)
	}
}
