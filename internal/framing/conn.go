package framing

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

// Listener makes connections that keep to the rules. It goes above TLS: what it accepts is read in clear.
type Listener struct {
	net.Listener
	// TLS is what connections speak; nil: they are in clear already.
	TLS *tls.Config
	// Refused is told of each broken rule, and Calmed of each connection that reset too many streams. Neither may be nil.
	Refused func(Fault)
	Calmed  func()
	// HeadTimeout bounds how long a request's head may take to come over HTTP/2; net/http bounds those of HTTP/1.1 itself.
	// Slow is told of each connection that is ended for that. Zero is no bound.
	HeadTimeout time.Duration
	Slow        func()
}

// Accept implements net.Listener. A handshake happens at the first read.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &Conn{Conn: c, below: c, by: l}
	if l.TLS != nil {
		w.Conn = tls.Server(c, l.TLS)
	}
	return w, nil
}

// What a connection is at.
const (
	atStart = iota // before anything came
	atHead
	atBody
	atFrames // HTTP/2
	atEnd    // a rule was broken
	atPeace  // nothing more is watched
)

// maxLine bounds a line that is kept because it came in pieces, in bytes. Servers bound heads to far less.
const maxLine = 1 << 20

// Conn is one connection. It hides a TLS connection's state from net/http, which would then speak HTTP/2 behind our
// back; by the preface it does so all the same.
type Conn struct {
	net.Conn
	below net.Conn // beneath TLS
	by    *Listener

	at     int
	head   Head
	body   int64  // what is left of it
	carry  []byte // the beginning of a line that came in pieces
	frames frames
	heads  int    // of frames, when slow was set
	poison string // what is read instead of the rest

	fault atomic.Pointer[Fault]
	peace atomic.Bool
	http2 atomic.Bool
	slow  atomic.Pointer[time.Timer] // not nil while a head over HTTP/2 is under way
	over  atomic.Bool                // it was closed, or is being so

	writing sync.Mutex    // guards what follows
	out     frames        // what the server sends over HTTP/2
	away    chan struct{} // not nil: to be told to go away at the end of the frame under way
}

// NetConn is the connection beneath TLS.
func (c *Conn) NetConn() net.Conn { return c.below }

// Pass ends the watch: the connection speaks another protocol from now on.
func (c *Conn) Pass() { c.peace.Store(true) }

// CloseWrite ends what is sent, where the connection can.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// errCalm ends a connection that reset too many streams.
var errCalm = errors.New("the client resets streams too fast")

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.at == atEnd {
		return c.end(p)
	}
	n, err := c.Conn.Read(p)
	if n == 0 || c.at == atPeace {
		c.inClear(err)
		return n, err
	}
	if c.peace.Load() {
		c.at, c.carry = atPeace, nil
		return n, err
	}
	good, ok := c.see(p[:n])
	switch {
	case ok:
		if c.at == atFrames {
			c.hurry()
		}
		return n, err
	case c.at == atFrames:
		c.calm()
		return 0, errCalm
	case good > 0:
		return good, nil
	}
	return c.end(p)
}

// hurry gives a head that has begun to come its time. Nothing else can come over the connection until it is whole (RFC 9113,
// 4.3), so that nothing else need be looked at.
func (c *Conn) hurry() {
	if c.by.HeadTimeout <= 0 {
		return
	}
	t := c.slow.Load()
	switch heading := c.frames.heading(); {
	case !heading && t != nil:
		t.Stop()
		c.slow.Store(nil)
	case heading && t == nil:
		c.heads = c.frames.heads
		c.slow.Store(time.AfterFunc(c.by.HeadTimeout, c.tooSlow))
	case heading && c.heads != c.frames.heads: // another one
		c.heads = c.frames.heads
		t.Reset(c.by.HeadTimeout)
	}
}

// tooSlow ends a connection whose client takes its time over a head.
func (c *Conn) tooSlow() {
	if c.over.Swap(true) {
		return
	}
	c.by.Slow()
	_ = c.Conn.Close() // the server closes it again
}

// inClear tells a client that does not speak TLS what it met.
func (c *Conn) inClear(err error) {
	var not tls.RecordHeaderError
	if err == nil || c.at == atPeace || !errors.As(err, &not) || not.Conn == nil {
		return
	}
	c.at = atPeace
	c.by.AnswerInClear(not.Conn, not.RecordHeader)
}

// AnswerInClear tells who began to speak HTTP where TLS is expected, with what came first.
func (l *Listener) AnswerInClear(c net.Conn, first [5]byte) {
	switch string(first[:4]) {
	case "GET ", "POST", "HEAD", "OPTI", "PUT ", "DELE", "PATC", "PRI ":
		l.Refused(InClear)
		_, _ = c.Write(answer(InClear)) // who listens is told
	}
}

// end is what a server reads after a broken rule: what it will refuse, and then nothing.
func (c *Conn) end(p []byte) (int, error) {
	if c.poison == "" {
		return 0, io.EOF
	}
	n := copy(p, c.poison)
	c.poison = c.poison[n:]
	return n, nil
}

// see follows what was read. When a rule is broken, it returns how much of it may be served.
func (c *Conn) see(b []byte) (good int, ok bool) {
	for i := 0; i < len(b); {
		switch c.at {
		case atStart, atHead:
			end := bytes.IndexByte(b[i:], '\n')
			line := b[i:]
			if end >= 0 {
				line = b[i : i+end+1]
			}
			if len(c.carry) > 0 || end < 0 {
				if c.carry = append(c.carry, line...); len(c.carry) > maxLine {
					return c.broken(TooLong, i)
				}
				line = c.carry
			}
			if end < 0 {
				return len(b), true
			}
			i += end + 1
			if c.at == atStart && string(line) == preface[:prefaceLine] {
				c.at, c.carry = atFrames, nil
				c.http2.Store(true)
				c.frames.skip = int64(len(preface) - len(line))
				continue
			}
			c.at = atHead
			if f := c.head.Line(line); f != "" {
				return c.broken(f, i-1)
			}
			c.carry = c.carry[:0]
			if c.head.Done {
				c.begun()
			}
		case atBody:
			n := min(int64(len(b)-i), c.body)
			c.body -= n
			i += int(n)
			if c.body == 0 {
				c.at = atHead
			}
		case atFrames:
			return len(b), c.frames.see(b[i:], time.Now)
		default:
			return len(b), true
		}
	}
	return len(b), true
}

// begun goes from a head to its body. What follows a chunked body is never served (relay.Guard sees to that), so nobody
// needs to know where it ends.
func (c *Conn) begun() {
	c.carry = nil
	switch c.body = c.head.Length; {
	case c.head.Chunked:
		c.at = atPeace
	case c.body > 0:
		c.at = atBody
	}
	c.head = Head{}
}

// broken lets a server read up to the end of the line that broke a rule, which it then finds to be no line.
func (c *Conn) broken(f Fault, good int) (int, bool) {
	c.fault.Store(&f)
	c.by.Refused(f)
	c.at, c.carry, c.poison = atEnd, nil, "\x00\r\n\r\n"
	return max(good, 0), false
}

// calm says why, between two frames of the server's, and ends the connection.
func (c *Conn) calm() {
	c.by.Calmed()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	told := make(chan struct{})
	c.writing.Lock()
	c.away = told
	if c.out.have == 0 && c.out.skip == 0 {
		c.goAway()
	}
	c.writing.Unlock()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-told:
	case <-late.C:
	}
	c.linger()
	_ = c.Conn.Close() // the server closes it again
}

// goAway ends what the server sends. The lock is held.
func (c *Conn) goAway() {
	_, _ = c.Conn.Write([]byte(goAway)) // who listens is told
	close(c.away)
	c.away = nil
	c.out.skip = -1
}

// sendFrames sends what the server writes over HTTP/2. The lock is held.
func (c *Conn) sendFrames(p []byte) (int, error) {
	switch {
	case c.out.skip < 0:
		return 0, errCalm
	case c.away == nil:
		c.out.pass(p)
		return c.Conn.Write(p)
	}
	n, ok := c.out.boundary(p)
	if n, err := c.Conn.Write(p[:n]); err != nil || !ok {
		return n, err
	}
	c.goAway()
	return n, errCalm
}

// Write implements net.Conn. The server's own words on a request that it could not read become ours.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.http2.Load() {
		return c.sendFrames(p)
	}
	f := c.fault.Load()
	if f == nil || !bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(p, []byte("HTTP/1.1 5")) ||
		!bytes.Contains(p, []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")) {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(answer(*f)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// answer refuses a request whose head breaks a rule.
func answer(f Fault) []byte {
	e := openai.BadFraming(f.Message())
	line := "400 Bad Request"
	if f == Coding { // RFC 9112, 6.1
		e.Status, line = 501, "501 Not Implemented"
	}
	body := e.JSON()
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Should-Retry: false\r\nConnection: close\r\n\r\n%s", line, len(body), body)
}

// What is still read of a connection whose request was refused, so that its client finds the answer and not a
// reset.
const (
	lingerBytes = 1 << 20
	lingerTime  = 500 * time.Millisecond
)

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.over.Store(true)
	if t := c.slow.Swap(nil); t != nil {
		t.Stop()
	}
	if c.fault.Load() != nil {
		c.linger()
	}
	return c.Conn.Close()
}

func (c *Conn) linger() {
	if c.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // it matters only that it was read
	}
}
