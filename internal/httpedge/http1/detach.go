package http1

import (
	"io"
	"net/http"
	"strings"
)

// DetachHandler receives the pieces of a detached stream. Its methods are never called concurrently.
type DetachHandler interface {
	// HandleChunk receives the next piece of the body with the error that Read would return; returning false
	// ends the stream. It must not block and must not keep p: other streams of the process wait for it.
	HandleChunk(p []byte, err error) bool
	// SetClientBlocked(true) reports a slow client: nothing is read until the client has received what was
	// written. SetClientBlocked(false) reports that it has.
	SetClientBlocked(on bool)
	// HandleWriteError reports that writing to the client failed, which also ends the stream.
	HandleWriteError(err error)
	// FinishDetached is called once after the end, on its own goroutine, in place of the handler. The response
	// ends when it returns, unless it has detached the stream again.
	FinishDetached()
}

// DetachStream forwards the rest of a response without a goroutine, starting when the handler returns: a silent
// stream holds no stack, and an active one wakes no goroutine. It reports whether that is possible. If so, the
// handler must no longer use w, the body, or a Header obtained from w, and leaves all final work to f. It is
// not possible if w or body are not of this package, or while the request is still being sent.
func DetachStream(w http.ResponseWriter, body io.Reader, f DetachHandler) bool {
	b, ok := body.(*responseBody)
	if !ok || !canDetach || lendableConnOf(b.readBufConn) == nil || !b.exchange.bodyRest.isSent() {
		return false
	}
	for {
		switch t := w.(type) {
		case *responseWriter:
			if t.detachHandler != nil {
				return false
			}
			t.detachHandler, t.detachedBody = f, b
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// startDetached starts the detached stream that the handler has requested. If no loop can take it, this
// goroutine forwards it.
func (c *serverConn) startDetached(w *responseWriter) bool {
	for w.detachHandler != nil {
		s := &detachedStream{conn: c, writer: w, body: w.detachedBody, handler: w.detachHandler, slot: -1}
		w.detachHandler, w.detachedBody = nil, nil
		c.clientWriter.nonBlocking = true
		shrinkTLSBuffers(c.tls, 0) // the next request may come much later
		w.dropSentHeader()
		if s.attachToLoop() {
			return true
		}
		c.clientWriter.nonBlocking = false
		for s.handler.HandleChunk(s.body.NextChunk()) {
		}
		s.handler.FinishDetached()
	}
	return false
}

// dropSentHeader releases a head that was sent. Only its trailers may still be needed.
func (w *responseWriter) dropSentHeader() {
	if !w.headBuilt {
		return
	}
	rest := http.Header{}
	for name, values := range w.header {
		if w.isTrailer(name) || strings.HasPrefix(name, http.TrailerPrefix) {
			rest[name] = values
		}
	}
	w.header = rest
}

// wouldBlockError is a Temporary net.Error. crypto/tls can continue to read after it.
type wouldBlockError struct{}

var errWouldBlock error = wouldBlockError{}

func (wouldBlockError) Error() string   { return "http1: nothing to read now" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }
