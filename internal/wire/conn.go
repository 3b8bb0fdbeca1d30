package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
)

const (
	connNew int32 = iota
	connIdle
	connActive
	connClosing
)

// serverConn is one connection that is served here.
type serverConn struct {
	*link
	s        *Server
	accepted net.Conn
	tcp      *net.TCPConn
	outlet   *outlet
	state    atomic.Int32
	born     time.Time
	base     context.Context
	remote   string
	peer     *tls.ConnectionState
	watched  uint64
	headers  http.Header // of the last answer, for the next one to write over; nil while one is written

	reads, writes due

	mu    sync.Mutex
	left  bool              // the client is gone
	under *lifetime.Context // the request under way
}

func (c *serverConn) hook(state http.ConnState) {
	if h := c.s.std.ConnState; h != nil {
		h(c.accepted, state)
	}
}

// serve serves the connection until it ends or is handed over.
func (c *serverConn) serve() {
	last := http.StateClosed
	defer func() { c.leave(last) }()
	c.remote = c.accepted.RemoteAddr().String()
	if c.tls != nil {
		switch proto, err := c.shake(); {
		case err != nil:
			return
		case proto == "h2":
			last = http.StateHijacked
			c.s.odd.give(c.tls)
			return
		}
	}
	if err := c.s.watch.add(c); err != nil {
		c.s.logf("watching a connection: %v", err)
		return
	}
	last = c.converse()
}

// stateFollowed stands for a connection whose answer a loop follows. It has no goroutine.
const stateFollowed http.ConnState = -1

// leave ends the connection's goroutine, and the connection with it where that is closed.
func (c *serverConn) leave(last http.ConnState) {
	if last == stateFollowed {
		return
	}
	c.s.watch.remove(c)
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	c.r = c.w
	c.drop()
	if last == http.StateClosed {
		_ = c.conn.Close() // whatever came of it, it is over
	}
	c.hook(last)
}

// converse answers requests. It returns what has become of the connection.
func (c *serverConn) converse() http.ConnState {
	for {
		req, goOn := c.next()
		if !goOn {
			return http.StateClosed
		}
		if req == nil {
			c.handOver()
			return http.StateHijacked
		}
		switch c.answer(req) {
		case answerLast:
			return http.StateClosed
		case answerFollowed:
			return stateFollowed
		}
		if !c.rest() {
			return http.StateClosed
		}
	}
}

// rest has the connection wait for its next request; false when it must not.
func (c *serverConn) rest() bool {
	c.hook(http.StateIdle)
	return c.state.CompareAndSwap(connActive, connIdle) && !c.s.stopping.Load()
}

// resumed takes the connection back from a loop.
func (c *serverConn) resumed(w *responseWriter, f Follower) {
	deepen(0)
	last := http.StateClosed
	defer func() { c.leave(last) }()
	switch c.run(w, f.Over) {
	case answerFollowed:
		last = stateFollowed
	case answerKept:
		if c.rest() {
			last = c.converse()
		}
	}
}

// ended ends an answer; false when the connection ends with it.
func (c *serverConn) ended(w *responseWriter) bool {
	kept := w.finish()
	if len(w.header) <= maxLines {
		clear(w.header) // whoever has it must not use it any more
		c.headers = w.header
	}
	return kept
}

// handOver gives the connection to net/http, with what was read of it.
func (c *serverConn) handOver() {
	c.s.watch.remove(c)
	_ = c.conn.SetDeadline(time.Time{}) // an error shows again at once
	c.s.odd.give(&begun{Conn: c.conn, first: append([]byte(nil), c.buffered()...), peer: c.peer})
}

// shake makes TLS, in the time that a head may take.
func (c *serverConn) shake() (proto string, err error) {
	if d := c.headTime(); d > 0 {
		_ = c.accepted.SetDeadline(time.Now().Add(d)) // an error shows again at once
	}
	if err := c.tls.HandshakeContext(c.base); err != nil {
		var rec tls.RecordHeaderError
		switch {
		case !errors.As(err, &rec) || rec.Conn == nil:
		case c.s.inClear != nil:
			c.s.inClear(rec.Conn, rec.RecordHeader)
		case looksLikeHTTP(rec.RecordHeader[:]):
			_, _ = io.WriteString(rec.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // who it is for reads it or not
		}
		c.s.logf("TLS handshake with %s: %v", c.remote, err)
		return "", err
	}
	_ = c.accepted.SetDeadline(time.Time{}) // as above
	state := c.tls.ConnectionState()
	c.peer = &state
	lean(c.tls, 0)
	return state.NegotiatedProtocol, nil
}

func looksLikeHTTP(b []byte) bool {
	switch string(b) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

func (c *serverConn) headTime() time.Duration {
	if c.s.std.ReadHeaderTimeout > 0 {
		return c.s.std.ReadHeaderTimeout
	}
	return c.s.std.ReadTimeout
}

func (c *serverConn) idleTime() time.Duration {
	if c.s.std.IdleTimeout > 0 {
		return c.s.std.IdleTimeout
	}
	return c.s.std.ReadTimeout
}

// next waits for a request. It is nil when the request is not of the usual shape; goOn is false when the connection has
// ended.
func (c *serverConn) next() (req *parsed, goOn bool) {
	fresh := c.state.Load() == connNew
	if len(c.buffered()) == 0 {
		wait := c.idleTime()
		if fresh {
			wait = c.headTime()
		}
		c.reads.within(wait)
		if err := c.read(); err != nil {
			return nil, false
		}
	}
	if !c.state.CompareAndSwap(connIdle, connActive) && !c.state.CompareAndSwap(connNew, connActive) {
		return nil, false // the server has closed it
	}
	c.hook(http.StateActive)
	for {
		b := c.buffered()
		if n := headEnd(b); n > 0 {
			if limit := c.s.std.MaxHeaderBytes; limit <= 0 || n <= limit {
				req = parseRequest(string(b[:n]))
			}
			if req == nil {
				return nil, true
			}
			c.r += n
			return req, true
		}
		// Who sends a head in pieces is left to net/http, but for one that only our buffer has cut.
		if len(b) < len(*c.buf) || len(b) == bufferBytes {
			return nil, true
		}
		c.reads.within(c.headTime())
		if err := c.read(); err != nil {
			return nil, len(c.buffered()) > 0
		}
	}
}

// SetReadDeadline bounds reads from now on, also one under way.
func (c *serverConn) SetReadDeadline(t time.Time) error { return c.reads.by(t, c.conn.SetReadDeadline) }

// SetWriteDeadline does so for writes.
func (c *serverConn) SetWriteDeadline(t time.Time) error {
	return c.writes.by(t, c.conn.SetWriteDeadline)
}

// read is fill within the time that is allowed.
func (c *serverConn) read() error {
	err := c.reads.begin(c.conn.SetReadDeadline)
	if err == nil {
		err = c.fill()
	}
	c.reads.done()
	return err
}

// write sends within the time that is allowed.
func (c *serverConn) write(b []byte) error {
	err := c.writes.begin(c.conn.SetWriteDeadline)
	if err == nil {
		if c.tls == nil {
			_, err = c.outlet.Write(b)
		} else {
			_, err = c.conn.Write(b)
		}
	}
	c.writes.done()
	return err
}

// gone says that the client has left.
func (c *serverConn) gone() {
	c.mu.Lock()
	c.left = true
	under := c.under
	c.mu.Unlock()
	if under != nil {
		under.End(nil)
	}
}

// begin begins the request's context, which ends with it or when the client leaves.
func (c *serverConn) begin(ctx *lifetime.Context) {
	ctx.Begin(c.base)
	c.mu.Lock()
	c.under = ctx
	left := c.left
	c.mu.Unlock()
	_ = c.SetReadDeadline(time.Time{}) // nobody reads
	if left {
		ctx.End(nil)
	}
}

func (c *serverConn) over() {
	c.mu.Lock()
	ctx := c.under
	c.under = nil
	c.mu.Unlock()
	ctx.End(nil)
}

// answered is what has become of an answer.
type answered int

const (
	answerKept     answered = iota // and the connection is
	answerLast                     // the connection ends with it
	answerFollowed                 // it goes on without this goroutine
)

// answer runs the handler.
func (c *serverConn) answer(p *parsed) answered {
	w := &responseWriter{c: c, header: c.headers}
	if c.headers = nil; w.header == nil {
		w.header = http.Header{}
	}
	c.begin(&w.ctx)
	req := p.request(&w.ctx)
	req.RemoteAddr, req.TLS = c.remote, c.peer
	w.body.begin(c, p.length)
	if p.length > 0 {
		req.Body = &w.body
	} else {
		c.drop()
	}
	w.closing = req.Close || c.s.stopping.Load()
	if d := c.s.std.WriteTimeout; d > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(d)) // an error shows again at once
	}
	return c.run(w, func() { c.s.handler.ServeHTTP(w, req) })
}

// run has an answer written and ends it, unless it is followed.
func (c *serverConn) run(w *responseWriter, write func()) (came answered) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				c.s.logf("panic serving %s: %v\n%s", c.remote, v, debug.Stack())
			}
			w.release()
			abort(c.accepted)
			came = answerLast
		}
		if came != answerFollowed {
			c.over()
		}
	}()
	write()
	switch {
	case c.followed(w):
		return answerFollowed
	case c.ended(w):
		return answerKept
	}
	return answerLast
}

// requestBody is a body of known length. What is left of it can be asked for at any time, also while a read waits for the
// client: only reads take the lock.
type requestBody struct {
	c    *serverConn
	mu   sync.Mutex // one read at a time
	left atomic.Int64
	shut atomic.Bool
}

// begin gives the body its length. Call it before anything else.
func (b *requestBody) begin(c *serverConn, length int64) {
	b.c = c
	b.left.Store(length)
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left.Load()
	switch {
	case b.shut.Load():
		return 0, http.ErrBodyReadAfterClose
	case left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if len(b.c.buffered()) == 0 {
		if err := b.c.read(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	n := copy(p[:min(int64(len(p)), left)], b.c.buffered())
	b.c.r += n
	if left -= int64(n); left == 0 {
		b.c.drop()
	}
	if b.left.Store(left); left == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer. The rest is dealt with when the answer was written.
func (b *requestBody) Close() error {
	b.shut.Store(true)
	return nil
}

// Ended reports whether the body was read to its end.
func (b *requestBody) Ended() bool { return b.rest() == 0 }

// rest is how many bytes are left unread.
func (b *requestBody) rest() int64 { return b.left.Load() }

// skip reads what is left, at most n bytes and for a few seconds; true when that was all of it.
func (b *requestBody) skip(n int64) bool {
	if b.rest() > n {
		return false
	}
	b.shut.Store(false)
	_ = b.c.SetReadDeadline(time.Now().Add(5 * time.Second)) // an error shows again at once
	_, _ = io.Copy(io.Discard, b)                            // what matters is whether something is left
	return b.rest() == 0
}
