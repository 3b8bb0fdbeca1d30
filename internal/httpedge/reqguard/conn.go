// Package reqguard enforces the framing rules of HTTP requests on connections.
//
// net/http tolerates what other implementations interpret differently: a Content-Length together with a
// Transfer-Encoding, a duplicate length, a line that ends in a bare LF or is folded. Two implementations that
// differ can be made to take the body of one request for another request (request smuggling). Each of these
// closes the connection with a response that names the violated rule.
//
// RequestHead holds the rules and parses lines only. GuardedListener and GuardedConn check what a server reads
// from a connection, without copying it. For HTTP/2, ResetLimiter bounds stream resets, because rapidly opened
// and reset streams (CVE-2023-44487) cost the server more than the client, and each head has a timeout. The
// package never inspects what a request asks for or what a body contains.
package reqguard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// GuardedListener accepts connections that enforce the framing rules. It goes above TLS, because it reads the
// plaintext.
type GuardedListener struct {
	net.Listener
	// TLS is the TLS configuration of connections; nil: the connections are plaintext already.
	TLS *tls.Config
	// OnFault is called for each violation, and OnResetFlood for each connection that reset too many streams.
	// Neither may be nil.
	OnFault      func(FramingFault)
	OnResetFlood func()
	// HeadTimeout bounds the transfer of a request head over HTTP/2; net/http bounds those of HTTP/1.1.
	// OnSlowHead is called for each connection closed for that. 0 means no bound.
	HeadTimeout time.Duration
	OnSlowHead  func()
}

// Accept implements net.Listener. The handshake happens at the first read.
func (l *GuardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &GuardedConn{Conn: c, rawConn: c, listener: l}
	if l.TLS != nil {
		w.Conn = tls.Server(c, l.TLS)
	}
	return w, nil
}

// The states of a connection.
const (
	atStart = iota // before the first byte
	atHead
	atBody
	atFrames    // HTTP/2
	atFault     // a rule was violated
	atUnchecked // no further checks
)

// maxLineBytes bounds a line that is buffered because it arrived in pieces. Servers bound heads to far less.
const maxLineBytes = 1 << 20

// GuardedConn is one guarded connection. It hides the TLS state from net/http, which would otherwise serve
// HTTP/2 without these checks. With the HTTP/2 preface it serves HTTP/2 on this connection.
type GuardedConn struct {
	net.Conn
	rawConn  net.Conn // below TLS
	listener *GuardedListener

	state        int
	head         RequestHead
	bodyLeft     int64  // unread bytes of the body
	partialLine  []byte // the beginning of a line that arrived in pieces
	clientFrames frameTracker
	timedHeads   int    // clientFrames.headsEnded when headTimer was set
	replacement  string // returned to the server instead of the rest

	fault     atomic.Pointer[FramingFault]
	unchecked atomic.Bool
	isHTTP2   atomic.Bool
	headTimer atomic.Pointer[time.Timer] // not nil while an HTTP/2 head is in transfer
	closed    atomic.Bool                // the connection is or is being closed

	writeMu      sync.Mutex    // guards the fields below
	serverFrames frameTracker  // the HTTP/2 frames of the server
	goAwayDone   chan struct{} // not nil: send GOAWAY at the end of the current frame
}

// NetConn returns the connection below TLS.
func (c *GuardedConn) NetConn() net.Conn { return c.rawConn }

// StopChecking ends the checks: the connection uses another protocol from now on.
func (c *GuardedConn) StopChecking() { c.unchecked.Store(true) }

// CloseWrite closes the write side, if the connection supports it.
func (c *GuardedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// errResetFlood ends a connection that reset too many streams.
var errResetFlood = errors.New("the client resets streams too fast")

// Read implements net.Conn.
func (c *GuardedConn) Read(p []byte) (int, error) {
	if c.state == atFault {
		return c.readReplacement(p)
	}
	n, err := c.Conn.Read(p)
	if n == 0 || c.state == atUnchecked {
		c.handlePlaintext(err)
		return n, err
	}
	if c.unchecked.Load() {
		c.state, c.partialLine = atUnchecked, nil
		return n, err
	}
	good, ok := c.checkBytes(p[:n])
	switch {
	case ok:
		if c.state == atFrames {
			c.timeHead()
		}
		return n, err
	case c.state == atFrames:
		c.closeResetFlood()
		return 0, errResetFlood
	case good > 0:
		return good, nil
	}
	return c.readReplacement(p)
}

// timeHead starts the timeout of a head that has begun. No other frame can arrive on the connection until the
// head is complete (RFC 9113, 4.3), so one timer is enough.
func (c *GuardedConn) timeHead() {
	if c.listener.HeadTimeout <= 0 {
		return
	}
	t := c.headTimer.Load()
	switch heading := c.clientFrames.isInHead(); {
	case !heading && t != nil:
		t.Stop()
		c.headTimer.Store(nil)
	case heading && t == nil:
		c.timedHeads = c.clientFrames.headsEnded
		c.headTimer.Store(time.AfterFunc(c.listener.HeadTimeout, c.closeSlowHead))
	case heading && c.timedHeads != c.clientFrames.headsEnded: // another head
		c.timedHeads = c.clientFrames.headsEnded
		t.Reset(c.listener.HeadTimeout)
	}
}

// closeSlowHead closes a connection whose client sends a head too slowly.
func (c *GuardedConn) closeSlowHead() {
	if c.closed.Swap(true) {
		return
	}
	c.listener.OnSlowHead()
	_ = c.Conn.Close() // the server closes it again
}

// handlePlaintext responds to a client that does not use TLS.
func (c *GuardedConn) handlePlaintext(err error) {
	var not tls.RecordHeaderError
	if err == nil || c.state == atUnchecked || !errors.As(err, &not) || not.Conn == nil {
		return
	}
	c.state = atUnchecked
	c.listener.AnswerPlaintext(not.Conn, not.RecordHeader)
}

// AnswerPlaintext responds to a client that sends HTTP where TLS is expected; first are its first bytes.
func (l *GuardedListener) AnswerPlaintext(c net.Conn, first [5]byte) {
	switch string(first[:4]) {
	case "GET ", "POST", "HEAD", "OPTI", "PUT ", "DELE", "PATC", "PRI ":
		l.OnFault(PlainHTTP)
		_, _ = c.Write(faultResponse(PlainHTTP)) // best effort
	}
}

// readReplacement returns what the server reads after a violation: bytes that it refuses, then nothing.
func (c *GuardedConn) readReplacement(p []byte) (int, error) {
	if c.replacement == "" {
		return 0, io.EOF
	}
	n := copy(p, c.replacement)
	c.replacement = c.replacement[n:]
	return n, nil
}

// checkBytes checks bytes that were read. After a violation it returns how many of them may be served.
func (c *GuardedConn) checkBytes(b []byte) (good int, ok bool) {
	for i := 0; i < len(b); {
		switch c.state {
		case atStart, atHead:
			end := bytes.IndexByte(b[i:], '\n')
			line := b[i:]
			if end >= 0 {
				line = b[i : i+end+1]
			}
			if len(c.partialLine) > 0 || end < 0 {
				if c.partialLine = append(c.partialLine, line...); len(c.partialLine) > maxLineBytes {
					return c.recordFault(LineTooLong, i)
				}
				line = c.partialLine
			}
			if end < 0 {
				return len(b), true
			}
			i += end + 1
			if c.state == atStart && string(line) == preface[:prefaceLineBytes] {
				c.state, c.partialLine = atFrames, nil
				c.isHTTP2.Store(true)
				c.clientFrames.payloadLeft = int64(len(preface) - len(line))
				continue
			}
			c.state = atHead
			if f := c.head.CheckLine(line); f != "" {
				return c.recordFault(f, i-1)
			}
			c.partialLine = c.partialLine[:0]
			if c.head.Done {
				c.beginBody()
			}
		case atBody:
			n := min(int64(len(b)-i), c.bodyLeft)
			c.bodyLeft -= n
			i += int(n)
			if c.bodyLeft == 0 {
				c.state = atHead
			}
		case atFrames:
			return len(b), c.clientFrames.checkFrames(b[i:], time.Now)
		default:
			return len(b), true
		}
	}
	return len(b), true
}

// beginBody switches from a head to its body. What follows a chunked body is never served (forward.GuardHandler
// ensures that), so its end need not be found.
func (c *GuardedConn) beginBody() {
	c.partialLine = nil
	switch c.bodyLeft = c.head.Length; {
	case c.head.Chunked:
		c.state = atUnchecked
	case c.bodyLeft > 0:
		c.state = atBody
	}
	c.head = RequestHead{}
}

// recordFault lets the server read up to the end of the offending line, which it then receives as an invalid
// line.
func (c *GuardedConn) recordFault(f FramingFault, good int) (int, bool) {
	c.fault.Store(&f)
	c.listener.OnFault(f)
	c.state, c.partialLine, c.replacement = atFault, nil, "\x00\r\n\r\n"
	return max(good, 0), false
}

// closeResetFlood sends the reason between two frames of the server, and closes the connection.
func (c *GuardedConn) closeResetFlood() {
	c.listener.OnResetFlood()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	goAwaySent := make(chan struct{})
	c.writeMu.Lock()
	c.goAwayDone = goAwaySent
	if c.serverFrames.headerRead == 0 && c.serverFrames.payloadLeft == 0 {
		c.sendGoAway()
	}
	c.writeMu.Unlock()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-goAwaySent:
	case <-late.C:
	}
	c.drainInput()
	_ = c.Conn.Close() // the server closes it again
}

// sendGoAway ends the writes of the server. The lock must be held.
func (c *GuardedConn) sendGoAway() {
	_, _ = c.Conn.Write([]byte(goAwayFrame)) // best effort
	close(c.goAwayDone)
	c.goAwayDone = nil
	c.serverFrames.payloadLeft = -1
}

// sendFrames writes HTTP/2 frames of the server. The lock must be held.
func (c *GuardedConn) sendFrames(p []byte) (int, error) {
	switch {
	case c.serverFrames.payloadLeft < 0:
		return 0, errResetFlood
	case c.goAwayDone == nil:
		c.serverFrames.skipBytes(p)
		return c.Conn.Write(p)
	}
	n, ok := c.serverFrames.skipToBoundary(p)
	if n, err := c.Conn.Write(p[:n]); err != nil || !ok {
		return n, err
	}
	c.sendGoAway()
	return n, errResetFlood
}

// Write implements net.Conn. It replaces the server's own response to a request that it could not parse.
func (c *GuardedConn) Write(p []byte) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.isHTTP2.Load() {
		return c.sendFrames(p)
	}
	f := c.fault.Load()
	if f == nil || !bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(p, []byte("HTTP/1.1 5")) ||
		!bytes.Contains(p, []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")) {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(faultResponse(*f)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// faultResponse returns the refusal of a request with a faulty head.
func faultResponse(f FramingFault) []byte {
	e := openai.BadFraming(f.Message())
	line := "400 Bad Request"
	if f == InvalidCoding { // RFC 9112, 6.1
		e.Status, line = 501, "501 Not Implemented"
	}
	body := e.JSON()
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Should-Retry: false\r\nConnection: close\r\n\r\n%s", line, len(body), body)
}

// Limits on reading from a connection whose request was refused, so that the client receives the response and
// not a reset.
const (
	lingerBytes = 1 << 20
	lingerTime  = 500 * time.Millisecond
)

// Close implements net.Conn.
func (c *GuardedConn) Close() error {
	c.closed.Store(true)
	if t := c.headTimer.Swap(nil); t != nil {
		t.Stop()
	}
	if c.fault.Load() != nil {
		c.drainInput()
	}
	return c.Conn.Close()
}

func (c *GuardedConn) drainInput() {
	if c.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // the content does not matter
	}
}
