package http1

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

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

const (
	connNew int32 = iota
	connIdle
	connActive
	connClosing
)

// serverConn is one connection served by this package.
type serverConn struct {
	*readBufConn
	server       *Server
	accepted     net.Conn
	tcpConn      *net.TCPConn
	clientWriter *clientWriter
	state        atomic.Int32
	acceptedAt   time.Time
	baseCtx      context.Context
	remoteAddr   string
	tlsState     *tls.ConnectionState
	watchID      uint64
	homeLoop     *requestLoop // the loop that the connection comes from; nil: none
	declines     int          // requests in a row that left the loop unread
	reusedHeader http.Header  // header map of the last response, reused by the next; nil while a response is written

	readDeadline, writeDeadline lazyDeadline

	mu         sync.Mutex
	clientGone bool            // the client has closed its side
	requestCtx *reqctx.Context // the current request
}

func (c *serverConn) reportState(state http.ConnState) {
	if h := c.server.httpServer.ConnState; h != nil {
		h(c.accepted, state)
	}
}

// serveConn serves the connection until it ends or is handed to net/http.
func (c *serverConn) serveConn() {
	last := http.StateClosed
	defer func() { c.releaseConn(last) }()
	c.remoteAddr = describeRemoteAddr(c.accepted)
	if c.tls != nil {
		switch proto, err := c.handshakeTLS(); {
		case err != nil:
			return
		case proto == "h2":
			last = http.StateHijacked
			c.server.fallback.deliverConn(c.tls)
			return
		}
	}
	if err := c.server.watcher.addConn(c); err != nil {
		c.server.logf("watching a connection: %v", err)
		return
	}
	last = c.serveRequests()
}

// describeRemoteAddr returns the address of the other side; empty if a connection that comes from a request loop has ended.
func describeRemoteAddr(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// stateDetached marks a connection whose response is written by a loop. It has no goroutine.
const stateDetached http.ConnState = -1

// releaseConn ends the goroutine of the connection, and closes the connection if last requires it.
func (c *serverConn) releaseConn(last http.ConnState) {
	if last == stateDetached {
		return
	}
	c.server.watcher.removeConn(c)
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	c.r = c.w
	c.releaseIfEmpty()
	if last == http.StateClosed {
		_ = c.conn.Close() // a close error has no effect
	}
	c.reportState(last)
}

// serveRequests serves requests and returns the resulting state of the connection.
func (c *serverConn) serveRequests() http.ConnState {
	for {
		req, goOn := c.nextRequest()
		if !goOn {
			return http.StateClosed
		}
		if req == nil {
			c.handOverToNetHTTP()
			return http.StateHijacked
		}
		switch c.serveRequest(req) {
		case actionClose:
			return http.StateClosed
		case actionDetach:
			return stateDetached
		}
		if c.returnToLoop() || !c.enterIdle() {
			return http.StateClosed
		}
	}
}

// afterAnswer serves the connection after an answer and returns its last state.
func (c *serverConn) afterAnswer(came connAction) http.ConnState {
	switch came {
	case actionDetach:
		return stateDetached
	case actionKeep:
		if !c.returnToLoop() && c.enterIdle() {
			return c.serveRequests()
		}
	}
	return http.StateClosed
}

// enterIdle marks the connection as waiting for its next request. It returns false if the connection must
// close.
func (c *serverConn) enterIdle() bool {
	c.reportState(http.StateIdle)
	return c.state.CompareAndSwap(connActive, connIdle) && !c.server.stopping.Load()
}

// resumeFromLoop takes the connection back from a loop.
func (c *serverConn) resumeFromLoop(w *responseWriter, f DetachHandler) {
	growStack(0)
	last := http.StateClosed
	defer func() { c.releaseConn(last) }()
	last = c.afterAnswer(c.runAndFinish(w, f.FinishDetached))
}

// endResponse ends a response. It returns false if the connection ends with it.
func (c *serverConn) endResponse(w *responseWriter) bool {
	kept := w.finishResponse()
	if len(w.header) <= maxHeaderLines {
		clear(w.header) // the handler must not use the header after this
		c.reusedHeader = w.header
	}
	return kept
}

// handOverToNetHTTP gives the connection to net/http, with the bytes already read.
func (c *serverConn) handOverToNetHTTP() {
	c.server.watcher.removeConn(c)
	_ = c.conn.SetDeadline(time.Time{}) // the next read or write returns the error
	c.server.fallback.deliverConn(&prereadConn{Conn: c.conn, prefix: append([]byte(nil), c.bufferedBytes()...), tlsState: c.tlsState, lingerTime: c.server.lingerTime})
}

// handshakeTLS performs the TLS handshake within the timeout for reading a head.
func (c *serverConn) handshakeTLS() (proto string, err error) {
	if d := c.server.headTimeout(); d > 0 {
		_ = c.accepted.SetDeadline(time.Now().Add(d)) // the next read or write returns the error
	}
	if err := c.tls.HandshakeContext(c.baseCtx); err != nil {
		var rec tls.RecordHeaderError
		switch {
		case !errors.As(err, &rec) || rec.Conn == nil:
		case c.server.onPlaintext != nil:
			c.server.onPlaintext(rec.Conn, rec.RecordHeader)
		case looksLikeHTTP(rec.RecordHeader[:]):
			_, _ = io.WriteString(rec.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // best effort: a write error has no effect
		}
		c.server.logf("TLS handshake with %s: %v", c.remoteAddr, err)
		return "", err
	}
	_ = c.accepted.SetDeadline(time.Time{}) // as above
	state := c.tls.ConnectionState()
	c.tlsState = &state
	shrinkTLSBuffers(c.tls, 0)
	return state.NegotiatedProtocol, nil
}

func looksLikeHTTP(b []byte) bool {
	switch string(b) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// nextRequest waits for a request. req is nil if the request has unusual syntax; goOn is false if the
// connection has ended.
func (c *serverConn) nextRequest() (req *parsedRequest, goOn bool) {
	fresh := c.state.Load() == connNew
	if len(c.bufferedBytes()) == 0 {
		wait := c.server.idleTimeout()
		if fresh {
			wait = c.server.headTimeout()
		}
		c.readDeadline.setTimeout(wait)
		if err := c.readWithDeadline(); err != nil {
			return nil, false
		}
	}
	if !c.state.CompareAndSwap(connIdle, connActive) && !c.state.CompareAndSwap(connNew, connActive) {
		return nil, false // closed by the server
	}
	c.reportState(http.StateActive)
	for {
		b := c.bufferedBytes()
		if n := findHeadEnd(b); n > 0 {
			if limit := c.server.httpServer.MaxHeaderBytes; limit <= 0 || n <= limit {
				req = parseRequestHead(string(b[:n]))
			}
			if req == nil {
				return nil, true
			}
			c.r += n
			return req, true
		}
		// A head that arrives in pieces is left to net/http, except when only the size of the buffer cut it.
		if len(b) < len(*c.buf) || len(b) == readBufferBytes {
			return nil, true
		}
		c.readDeadline.setTimeout(c.server.headTimeout())
		if err := c.readWithDeadline(); err != nil {
			return nil, len(c.bufferedBytes()) > 0
		}
	}
}

// SetReadDeadline bounds reads from now on, including one in progress.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	return c.readDeadline.setDeadline(t, c.conn.SetReadDeadline)
}

// SetWriteDeadline bounds writes from now on, including one in progress.
func (c *serverConn) SetWriteDeadline(t time.Time) error {
	return c.writeDeadline.setDeadline(t, c.conn.SetWriteDeadline)
}

// readWithDeadline is fillBuffer within the read timeout.
func (c *serverConn) readWithDeadline() error {
	err := c.readDeadline.beginIO(c.conn.SetReadDeadline)
	if err == nil {
		err = c.fillBuffer()
	}
	c.readDeadline.endIO()
	return err
}

// writeWithDeadline writes b within the write timeout.
func (c *serverConn) writeWithDeadline(b []byte) error {
	err := c.writeDeadline.beginIO(c.conn.SetWriteDeadline)
	if err == nil {
		if c.tls == nil {
			_, err = c.clientWriter.Write(b)
		} else {
			_, err = c.conn.Write(b)
		}
	}
	c.writeDeadline.endIO()
	return err
}

// handleClientGone handles the client closing its side.
func (c *serverConn) handleClientGone() {
	c.mu.Lock()
	c.clientGone = true
	under := c.requestCtx
	c.mu.Unlock()
	if under != nil {
		under.EndWithCause(nil)
	}
}

// beginRequest starts the context of the request. The context ends with the request or when the client closes
// the connection.
func (c *serverConn) beginRequest(ctx *reqctx.Context) {
	ctx.StartUnder(c.baseCtx)
	c.mu.Lock()
	c.requestCtx = ctx
	left := c.clientGone
	c.mu.Unlock()
	_ = c.SetReadDeadline(time.Time{}) // no read is in progress
	if left {
		ctx.EndWithCause(nil)
	}
}

func (c *serverConn) endRequest() {
	c.mu.Lock()
	ctx := c.requestCtx
	c.requestCtx = nil
	c.mu.Unlock()
	ctx.EndWithCause(nil)
}

// connAction is what happens to the connection after a response.
type connAction int

const (
	actionKeep   connAction = iota // keep the connection
	actionClose                    // close the connection
	actionDetach                   // a loop continues the response without this goroutine
)

// serveRequest runs the handler.
func (c *serverConn) serveRequest(p *parsedRequest) connAction {
	w := &responseWriter{conn: c, header: c.reusedHeader}
	if c.reusedHeader = nil; w.header == nil {
		w.header = http.Header{}
	}
	c.beginRequest(&w.ctx)
	req := p.toHTTPRequest(&w.ctx)
	req.RemoteAddr, req.TLS = c.remoteAddr, c.tlsState
	w.reqBody.setLength(c, p.contentLength)
	if p.contentLength > 0 {
		req.Body = &w.reqBody
	} else {
		c.releaseIfEmpty()
	}
	w.closeAfter = req.Close || c.server.stopping.Load()
	if d := c.server.httpServer.WriteTimeout; d > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(d)) // the next write returns the error
	}
	return c.runAndFinish(w, func() { c.server.handler.ServeHTTP(w, req) })
}

// runAndFinish runs write and ends the response, unless the response is detached.
func (c *serverConn) runAndFinish(w *responseWriter, write func()) (came connAction) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				c.server.logf("panic serving %s: %v\n%s", c.remoteAddr, v, debug.Stack())
			}
			w.releaseOutput()
			abortConn(c.accepted)
			came = actionClose
		}
		if came != actionDetach {
			c.endRequest()
		}
	}()
	write()
	switch {
	case c.startDetached(w):
		return actionDetach
	case c.endResponse(w):
		return actionKeep
	}
	return actionClose
}

// requestBody is a body of known length. The number of unread bytes can be read at any time, also while Read
// waits for the client: only reads take the lock.
type requestBody struct {
	conn      *serverConn
	mu        sync.Mutex // serializes reads
	remaining atomic.Int64
	closed    atomic.Bool
}

// setLength sets the length of the body. It must be called before any other method.
func (b *requestBody) setLength(c *serverConn, length int64) {
	b.conn = c
	b.remaining.Store(length)
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.remaining.Load()
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if len(b.conn.bufferedBytes()) == 0 {
		if err := b.conn.readWithDeadline(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	n := copy(p[:min(int64(len(p)), left)], b.conn.bufferedBytes())
	b.conn.r += n
	if left -= int64(n); left == 0 {
		b.conn.releaseIfEmpty()
	}
	if b.remaining.Store(left); left == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer. Unread bytes are handled after the response was written.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return nil
}

// AtEOF reports whether the body was read to its end.
func (b *requestBody) AtEOF() bool { return b.unreadBytes() == 0 }

// unreadBytes returns the number of unread bytes.
func (b *requestBody) unreadBytes() int64 { return b.remaining.Load() }

// discardRest reads and drops at most n bytes of the rest, for at most 5 s. It returns true if the body is then
// at its end.
func (b *requestBody) discardRest(n int64) bool {
	if b.unreadBytes() > n {
		return false
	}
	b.closed.Store(false)
	_ = b.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // the next read returns the error
	_, _ = io.Copy(io.Discard, b)                               // only the number of bytes left matters
	return b.unreadBytes() == 0
}
