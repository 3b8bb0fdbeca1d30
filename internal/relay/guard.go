package relay

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// maxLinger and lingerTime bound what is still read of a body after its request was refused.
	maxLinger  = 64 << 20
	lingerTime = 5 * time.Second
	// unaskedTime is lingerTime for a caller that waits to be asked for its body and was not. It should send nothing.
	unaskedTime = 250 * time.Millisecond
)

// Guard wraps the handler of a door that strangers reach by HTTP/1.1.
//
// A refusal is written before the rest of the body is read, and then the rest is read and thrown away within bounds: a
// client that first sends and then listens would otherwise meet a reset and never see why. What is still unread after
// that ends the connection, so that it can never be taken for another request. For the same reason a chunked body is the
// last on its connection: RFC 9112, 6.1 asks that of a request that also had a Content-Length, which net/http hides.
//
// Answers that may be written before the body is read need a Content-Length.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if err := enableFullDuplex(w); err != nil { // a writer of a test
			next.ServeHTTP(w, r)
			return
		}
		if body, ok := r.Body.(watchable); ok && len(r.TransferEncoding) == 0 {
			next.ServeHTTP(w, r)
			if !body.Ended() && !linger(body, w, lingerTime) {
				Abort()
			}
			return
		}
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
			if KindOf(r) == GRPC { // its end may come before that of its body, and nothing follows either
				next.ServeHTTP(w, r)
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime)) // the server reads what is left of the body
				return
			}
		}
		body := &watched{ReadCloser: r.Body}
		inner := *r // the server looks at the body in r itself
		inner.Body = body
		next.ServeHTTP(w, &inner)
		within := lingerTime
		if r.Header.Get("Expect") != "" && !body.begun.Load() {
			within = unaskedTime
		}
		if !body.Ended() && !linger(body, w, within) {
			Abort()
		}
	})
}

// watchable is a body that knows whether it was read to its end.
type watchable interface {
	io.ReadCloser
	Ended() bool
}

// enableFullDuplex is what a controller does, without one where the writer is the server's own.
func enableFullDuplex(w http.ResponseWriter) error {
	if own, ok := w.(interface{ EnableFullDuplex() error }); ok {
		return own.EnableFullDuplex()
	}
	return http.NewResponseController(w).EnableFullDuplex()
}

// watched knows whether a body was read to its end. Another goroutine than the handler's may read it.
type watched struct {
	io.ReadCloser
	ended, begun atomic.Bool
}

func (b *watched) Read(p []byte) (int, error) {
	b.begun.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Ended says so.
func (b *watched) Ended() bool { return b.ended.Load() }

// linger reads what is left of a body; true when that is all of it. Otherwise the deadline stays, so that nothing after
// it waits for the rest.
func linger(b watchable, w http.ResponseWriter, within time.Duration) bool {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(within)) != nil || rc.Flush() != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, b, maxLinger) // what matters is whether the end was reached
	return b.Ended() && rc.SetReadDeadline(time.Time{}) == nil
}
