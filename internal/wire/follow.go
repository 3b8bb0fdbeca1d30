package wire

import (
	"io"
	"net/http"
	"strings"
)

// Follower is told what comes of a stream that is followed. Its methods are never called at the same time.
type Follower interface {
	// Piece takes the next piece of the body, with the error that Read would return; false ends the following. It must not
	// wait, nor keep p: other streams of the process wait for it.
	Piece(p []byte, err error) bool
	// Held says that the client is slow: nothing is read until it has taken what was written, which Held(false) says.
	Held(on bool)
	// Unsent says that the client could not be written to, which ends the following too.
	Unsent(err error)
	// Over is called once after that, on a goroutine of its own, in the handler's place: the answer ends when it returns,
	// unless it has had the stream followed again.
	Over()
}

// Follow has the rest of an answer passed on without a goroutine, from when the handler returns: no stack is kept for a
// stream that is silent, and no goroutine is woken for one that is not. It reports whether that is possible. Then the
// handler uses neither w nor the body any more, nor a Header of w's that it has asked for before, and leaves what is to be
// done in the end to f. It is not possible where w
// or the body are not of this package, nor while the request is still being sent.
func Follow(w http.ResponseWriter, body io.Reader, f Follower) bool {
	b, ok := body.(*responseBody)
	if !ok || !canFollow || cableOf(b.link) == nil || !b.x.more.sent() {
		return false
	}
	for {
		switch t := w.(type) {
		case *responseWriter:
			if t.follower != nil {
				return false
			}
			t.follower, t.source = f, b
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// followed begins the following that the handler has asked for. Where no loop can have the stream, it is followed here
// and now.
func (c *serverConn) followed(w *responseWriter) bool {
	for w.follower != nil {
		s := &seat{c: c, w: w, body: w.source, f: w.follower, slot: -1}
		w.follower, w.source = nil, nil
		c.outlet.eager = true
		lean(c.tls, 0) // the next request may be a long time off
		w.shed()
		if s.begin() {
			return true
		}
		c.outlet.eager = false
		for s.f.Piece(s.body.Next()) {
		}
		s.f.Over()
	}
	return false
}

// shed lets go of a head that was sent: what may still be of use of it are trailers.
func (w *responseWriter) shed() {
	if !w.begun {
		return
	}
	rest := http.Header{}
	for name, values := range w.header {
		if w.trails(name) || strings.HasPrefix(name, http.TrailerPrefix) {
			rest[name] = values
		}
	}
	w.header = rest
}

// waitError is a Temporary net.Error, after which crypto/tls goes on reading.
type waitError struct{}

var errWait error = waitError{}

func (waitError) Error() string   { return "wire: nothing to read now" }
func (waitError) Timeout() bool   { return true }
func (waitError) Temporary() bool { return true }
